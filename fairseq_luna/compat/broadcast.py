"""Resuming on several processes fails: rank 0 sends the checkpoint's config to the others through ``torch.load``.

torch >= 2.6 refuses it under weights_only (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). The bytes come from a process of
the same run, not from a file, so this patch uses torch's own broadcast of objects.
"""

from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils

from fairseq_luna.compat.checkpoints import is_refused
from fairseq_luna.replacing import replaces

SUMMARY = "resuming on several processes was refused by torch; rank 0 broadcasts the checkpoint as objects"


def is_needed() -> bool:
    """Whether torch refuses the class that fairseq replaces the sent tensors by."""
    return is_refused(distributed_utils._TensorPlaceholder(index=0))


def apply() -> None:
    @replaces(distributed_utils, "_broadcast_object_slow")
    def _broadcast_object_slow(original: Any, obj: Any, src_rank: int, group: Any, dist_device: torch.device) -> Any:
        # XLA has no process groups for torch's broadcast.
        if distributed_utils.use_xla():
            return original(obj, src_rank, group, dist_device)
        holder = [obj]
        torch.distributed.broadcast_object_list(holder, src=src_rank, group=group, device=dist_device)
        return holder[0]

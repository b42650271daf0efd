"""Resuming on several processes fails: rank 0 sends the checkpoint's config to the others through ``torch.load``.

torch >= 2.6 refuses it under weights_only (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). The bytes come from a process of
the same run, not from a file, so this patch uses torch's own broadcast of objects.
"""

import io
import pickle
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils

from fairseq_luna.compat.patch import Patch


def is_needed() -> bool:
    """Whether torch refuses the class that fairseq replaces the sent tensors by."""
    file = io.BytesIO()
    torch.save(distributed_utils._TensorPlaceholder(index=0), file)
    file.seek(0)
    try:
        torch.load(file)
    except pickle.UnpicklingError:
        return True
    return False


def apply() -> None:
    original_broadcast = distributed_utils._broadcast_object_slow

    def _broadcast_object_slow(obj: Any, src_rank: int, group: Any, dist_device: torch.device) -> Any:
        # XLA has no process groups for torch's broadcast.
        if distributed_utils.use_xla():
            return original_broadcast(obj, src_rank, group, dist_device)
        holder = [obj]
        torch.distributed.broadcast_object_list(holder, src=src_rank, group=group, device=dist_device)
        return holder[0]

    distributed_utils._broadcast_object_slow = _broadcast_object_slow


PATCH = Patch(
    "broadcast",
    is_needed,
    apply,
    "resuming on several processes was refused by torch; rank 0 broadcasts the checkpoint as objects",
)

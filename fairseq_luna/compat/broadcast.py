"""Resuming on several processes: rank 0 reads the checkpoint and sends it on through ``torch.load``.

What it sends is no file but its own memory (with a config object in it), so torch's refusal of everything but
tensors only breaks the resume. torch's own broadcast of objects takes its place.
"""

import io
import pickle
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils

from fairseq_luna.compat.patch import Patch


def is_needed() -> bool:
    """Whether torch refuses what the host wraps the sent tensors in."""
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
        # XLA has no process groups that torch's broadcast could use.
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
    "resuming on several processes was refused by torch; rank 0 now sends the checkpoint on as objects",
)

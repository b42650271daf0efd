"""The attention matrix of a module: what it makes of values that are the columns of the identity."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_luna.models.mixed.attentions import ATTENTIONS
from fairseq_luna.modules import BlockAttention, ExternalAttention, FastformerAttention, GatedAttention, LunaAttention
from fairseq_luna.modules.heads import split_heads

# Their output is not one weighted sum of the steps' values.
WITHOUT = {
    "fastformer": FastformerAttention,  # multiplies vectors
    "block": BlockAttention,  # joins two levels
    "external": ExternalAttention,  # reads learned values
    "flash": GatedAttention,  # has a gate for each channel
    "luna": LunaAttention,  # has two matrices
}
NAMES = [name for name, attention in ATTENTIONS.items() if name not in WITHOUT and "encoder" in attention.factories()]
AT_ONCE = 8  # sentences of a batch


def has_a_matrix(module: nn.Module) -> bool:
    return not isinstance(module, tuple(WITHOUT.values()))


@torch.no_grad()
def attention_matrices(module: Any, x: Tensor) -> Tensor:
    """The matrix A of each head, whose output is ``A v``, for one sentence without padding.

    Args:
        module: an encoder's self-attention in evaluation mode, of which :func:`has_a_matrix`.
        x: its input ``(N, 1, C)``.

    Returns:
        ``(H, N, N)``. The rows of linformer, RFA and Nystrom attention do not sum to 1 and may have negative numbers;
        Nystrom's include its convolution.
    """
    size = x.shape[2] // module.num_heads
    columns = torch.eye(len(x), dtype=x.dtype).split(size, dim=1)
    batches = [columns[first : first + AT_ONCE] for first in range(0, len(columns), AT_ONCE)]
    return torch.cat([_outputs(module, x, batch) for batch in batches], dim=-1)


def _outputs(module: Any, x: Tensor, columns: Sequence[Tensor]) -> Tensor:
    """What the heads make of values: ``(H, N, number of columns)`` for ``columns`` of ``(N, up to D)`` each."""
    size = x.shape[2] // module.num_heads
    padded = [F.pad(part, (0, size - part.shape[1])).repeat(1, module.num_heads) for part in columns]
    values, seen = torch.stack(padded, dim=1), []

    with ExitStack() as hooks:
        for name, projection in module.named_children():
            if name.endswith("v_proj"):  # Longformer has two; the second of a part of the steps
                hook = projection.register_forward_hook(lambda _, args, output: values[: len(output)])
                hooks.callback(hook.remove)
        hook = module.out_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        hooks.callback(hook.remove)
        module(x.expand(-1, len(columns), -1))
    heads = split_heads(seen[0], module.num_heads)  # (number of parts, H, N, D)
    return torch.cat([of_part[..., : part.shape[1]] for of_part, part in zip(heads, columns, strict=True)], dim=-1)

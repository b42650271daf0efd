"""The real steps of padded sequences, numbered and moved together, without synchronising with the device."""

import torch
from torch import Tensor

from .once_per_batch import once_per_batch


@once_per_batch
def padding_of(padding_mask: Tensor | None, batch: int, steps: int, device: torch.device) -> Tensor:
    """``padding_mask (B, T)``, or a mask without padding in place of None."""
    return torch.zeros(batch, steps, dtype=torch.bool, device=device) if padding_mask is None else padding_mask


@once_per_batch
def lengths_of(padding_mask: Tensor) -> Tensor:
    """The number of real steps of each sentence, ``(B,)`` int64; ``padding_mask (B, T)`` bool, True = padding."""
    return (~padding_mask).sum(1)


@once_per_batch
def positions(padding_mask: Tensor) -> Tensor:
    """The number of each step among the real ones, from 0; of padding some number in range: ``(B, T)`` int64.

    ``padding_mask (B, T)`` bool, True = padding, anywhere.
    """
    return ((~padding_mask).cumsum(1) - 1).clamp(min=0)


@once_per_batch
def real_first(padding_mask: Tensor) -> Tensor:
    """The steps of each sentence in this order: the real ones, then the padding. ``(B, T)`` int64."""
    return torch.argsort(padding_mask.to(torch.uint8), dim=1, stable=True)


@once_per_batch
def rows_real_first(padding_mask: Tensor) -> Tensor:
    """:func:`real_first` as :func:`rows_of` it."""
    return rows_of(real_first(padding_mask))


def rows_of(steps: Tensor) -> Tensor:
    """``steps (B, T)`` as rows of ``x (T, B, C)``, whose step t of sentence b is row ``t B + b``: ``(T B)`` int64."""
    batch = steps.shape[0]
    return (steps.t() * batch + torch.arange(batch, device=steps.device)).flatten()


@once_per_batch
def in_own_segment(padding_mask: Tensor | None, slots: int, steps: int, device: torch.device) -> Tensor:
    """Whether a step lies in the segment of a slot: slot l has the l-th of ``min(L, n)`` equal segments.

    Args:
        padding_mask: ``(B, T)`` bool, True = padding; None = no padding.
        slots: L.
        steps: T.
        device: of the result.

    Returns:
        ``(B, L, T)`` bool, B = 1 without padding. The p-th of n real steps is in segment ``floor(p min(L, n) / n)``;
        padding is in the segment of some real step.
    """
    padding_mask = padding_of(padding_mask, 1, steps, device)
    lengths = lengths_of(padding_mask).clamp(min=1)[:, None]
    segments = positions(padding_mask) * lengths.clamp(max=slots) // lengths
    return segments[:, None] == torch.arange(slots, device=device)[:, None]


def read_steps(x: Tensor, steps: Tensor) -> Tensor:
    """Step ``steps[b, t]`` of ``x (B, H, T, D)`` at each t: ``(B, H, T, D)``; ``steps (B, T)`` int64."""
    batch, heads, length, size = x.shape
    read = x.permute(2, 0, 1, 3).reshape(length * batch, heads * size).index_select(0, rows_of(steps))
    return read.view(steps.shape[1], batch, heads, size).permute(1, 2, 0, 3)


def zeros_at_padding(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """``x (B, H, T, D)``, or ``(B, H, T)``, with zeros where ``padding_mask (B, T)`` is True; ``x`` itself for None."""
    if padding_mask is None:
        return x
    return x.masked_fill(padding_mask[:, None, :, None] if x.dim() == 4 else padding_mask[:, None], 0)


def pack_left(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """``x (B, H, T, D)`` with zeros for padding, and that behind all real steps of its sentence."""
    if padding_mask is None:
        return x
    return read_steps(zeros_at_padding(x, padding_mask), real_first(padding_mask))


def in_place(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The opposite of :func:`pack_left`: ``x (B, H, T, D)`` by position, for each step, and zeros for padding."""
    if padding_mask is None:
        return x
    return zeros_at_padding(read_steps(x, positions(padding_mask)), padding_mask)

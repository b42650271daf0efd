"""The form that generates: one step after the other, and a new summary only where a block closes."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..softmax_attention import softmax_attention
from .naive import Projection


class BlockState(NamedTuple):
    """What one step hands to the next. Each row counts its own real steps: rows may close blocks at different times."""

    steps: Tensor  # (B,) int64, real steps so far
    keys: Tensor  # (B, H, S, D), the open block's keys; S is 0 where blocks are unordered
    values: Tensor  # (B, H, S, D), and its values
    summary: Tensor  # (B, H, D), the open block's summary so far, fp32 when the inputs are half precision
    block_keys: Tensor  # (B, H, N, D), keys of the closed blocks' summaries, N as many as the furthest row has
    block_values: Tensor  # (B, H, N, D), and their values
    read: Tensor  # (B, H, D), Z of the open block


def initial_state(v: Tensor, places: int) -> BlockState:
    """The state before the first step.

    Args:
        v: values ``(B, H, ., D)``, of any number of steps: only their shape, dtype and device are read.
        places: the block size; 0 for unordered blocks, which keep no keys.
    """
    batch, heads, _, size = v.shape
    return BlockState(
        steps=torch.zeros(batch, dtype=torch.int64, device=v.device),
        keys=v.new_zeros(batch, heads, places, size),
        values=v.new_zeros(batch, heads, places, size),
        summary=v.new_zeros(batch, heads, size, dtype=accumulation_dtype(v)),
        block_keys=v.new_zeros(batch, heads, 0, size),
        block_values=v.new_zeros(batch, heads, 0, size),
        read=v.new_zeros(batch, heads, size),
    )


def block_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    project: Projection,
    state: BlockState,
    *,
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, BlockState]:
    """Take the next step, or a few: the causal :func:`.naive.block_attention` continued from ``state``.

    Args:
        q, k, v: ``(B, H, T, D)``, usually T = 1.
        project: queries, keys and values of summaries ``(B, H, 1, D)``.
        state: what came before; its keys tell the block size.
        padding_mask: ``(B, T)`` bool, True = padding: the step is not counted, and its output has no meaning.
        dropout_p: probability with which a weight of either level is dropped.

    Returns:
        Y and Z, each ``(B, H, T, D)`` in the dtype of ``q``, and the state after these steps.
    """
    block_size = state.keys.shape[2]
    place = torch.arange(block_size, device=q.device)
    outputs, reads = [], []
    for t in range(q.shape[2]):
        slot = state.steps % block_size
        # A padded step writes here too, where the next real one overwrites it before anything reads it.
        here = (place == slot[:, None])[:, None, :, None]
        keys = torch.where(here, k[:, :, t : t + 1], state.keys)
        values = torch.where(here, v[:, :, t : t + 1], state.values)
        later = place > slot[:, None]
        y = softmax_attention(q[:, :, t : t + 1], keys, values, padding_mask=later, dropout_p=dropout_p)[:, :, 0]
        summary = torch.lerp(state.summary, y.to(state.summary.dtype), share(slot, state.summary))
        outputs.append(y)
        reads.append(state.read)
        state = state._replace(keys=keys, values=values)
        state = advance(state, summary, project, block_size, real_at(t, padding_mask, state.steps), dropout_p)
    return torch.stack(outputs, dim=2), torch.stack(reads, dim=2), state


def unordered_block_attention_step(
    v: Tensor,
    project: Projection,
    state: BlockState,
    *,
    reduce: str,
    block_size: int,
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, BlockState]:
    """As :func:`block_attention_step`, for :func:`.naive.unordered_block_attention`.

    Args:
        v: ``(B, H, T, D)``, usually T = 1.
        reduce: "mean" or "sum".
        block_size: steps in a block.
        project, state, padding_mask, dropout_p: as in :func:`block_attention_step`.

    Returns:
        As :func:`block_attention_step`.
    """
    outputs, reads = [], []
    for t in range(v.shape[2]):
        slot = state.steps % block_size
        value = v[:, :, t].to(state.summary.dtype)
        if reduce == "mean":
            summary = torch.lerp(state.summary, value, share(slot, state.summary))
        else:
            summary = state.summary.masked_fill((slot == 0)[:, None, None], 0) + value
        outputs.append(summary.to(v.dtype))
        reads.append(state.read)
        state = advance(state, summary, project, block_size, real_at(t, padding_mask, state.steps), dropout_p)
    return torch.stack(outputs, dim=2), torch.stack(reads, dim=2), state


def share(slot: Tensor, like: Tensor) -> Tensor:
    """How much the step at ``slot (B,)`` counts in its block's mean so far: ``(B, 1, 1)``, all of it at the first."""
    return (slot + 1).to(like.dtype).reciprocal()[:, None, None]


def real_at(t: int, padding_mask: Tensor | None, like: Tensor) -> Tensor:
    """``(B,)`` bool: which rows count the step ``t``."""
    return torch.ones_like(like, dtype=torch.bool) if padding_mask is None else ~padding_mask[:, t]


def advance(
    state: BlockState, summary: Tensor, project: Projection, block_size: int, real: Tensor, dropout_p: float
) -> BlockState:
    """Count a step and take its block's new ``summary (B, H, D)``, in rows where it is ``real (B,)``."""
    steps = state.steps + real
    state = state._replace(steps=steps, summary=torch.where(real[:, None, None], summary, state.summary))
    closed = real & (steps % block_size == 0)
    return close_blocks(state, project, closed, steps // block_size, dropout_p) if closed.any() else state


def close_blocks(state: BlockState, project: Projection, closed: Tensor, count: Tensor, dropout_p: float) -> BlockState:
    """Append the summary in rows where ``closed (B,)``, which have ``count (B,)`` closed blocks with it, and read."""
    q, k, v = project(state.summary[:, :, None].to(state.read.dtype))
    grown = max(0, int(count.max()) - state.block_keys.shape[2])
    block_keys, block_values = (F.pad(x, (0, 0, 0, grown)) for x in (state.block_keys, state.block_values))
    number = torch.arange(block_keys.shape[2], device=count.device)
    here = (closed[:, None] & (number == count[:, None] - 1))[:, None, :, None]
    block_keys, block_values = torch.where(here, k, block_keys), torch.where(here, v, block_values)
    # The first place counts as filled in rows without a closed block, whose result is not taken.
    empty = number >= count.clamp(min=1)[:, None]
    z = softmax_attention(q, block_keys, block_values, padding_mask=empty, dropout_p=dropout_p)[:, :, 0]
    read = torch.where(closed[:, None, None], z, state.read)
    return state._replace(block_keys=block_keys, block_values=block_values, read=read)

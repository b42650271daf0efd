"""Causal generation form: one step at a time, with a new summary each time a block is complete."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..softmax_attention import softmax_attention
from .shared import Projection


class BlockState(NamedTuple):
    """The open block and the complete ones. Rows count their own real steps, and complete blocks at different times."""

    steps: Tensor  # (B,) int64, the number of real steps so far
    keys: Tensor  # (B, H, S, D), keys of the open block; S = 0 if blocks are unordered
    values: Tensor  # (B, H, S, D), values of the open block
    summary: Tensor  # (B, H, D), summary of the open block so far, fp32 if the inputs are half precision
    block_keys: Tensor  # (B, H, N, D), keys of the summaries of complete blocks, N the most in a row
    block_values: Tensor  # (B, H, N, D), values of these summaries
    read: Tensor  # (B, H, D), Z of the open block


def initial_state(v: Tensor, places: int) -> BlockState:
    """The state before the first step.

    Args:
        v: ``(B, H, any T, D)``, for shape, dtype and device.
        places: the block size; 0 for unordered blocks, which need no keys.
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
    """One or more steps of the causal :func:`.naive.block_attention`, continued from ``state``.

    Args:
        q, k, v: ``(B, H, T, D)``, usually T = 1.
        project: from summaries ``(B, H, 1, D)`` to their queries, keys and values.
        state: the state after the previous steps; its keys have the block size.
        padding_mask: ``(B, T)`` bool, True = padding: the step is not counted, and its output is undefined.
        dropout_p: dropout probability of the weights of both levels.

    Returns:
        Y and Z, each ``(B, H, T, D)`` in the dtype of ``q``, and the state after these steps.
    """
    block_size = state.keys.shape[2]
    place = torch.arange(block_size, device=q.device)
    outputs, reads = [], []
    for t in range(q.shape[2]):
        newest = state.steps % block_size
        # Padded steps are written too; the next real step overwrites them before they are read.
        here = (place == newest[:, None])[:, None, :, None]
        keys = torch.where(here, k[:, :, t : t + 1], state.keys)
        values = torch.where(here, v[:, :, t : t + 1], state.values)
        later = place > newest[:, None]
        y, _ = softmax_attention(q[:, :, t : t + 1], keys, values, padding_mask=later, dropout_p=dropout_p)
        y = y[:, :, 0]
        summary = torch.lerp(state.summary, y.to(state.summary.dtype), share(newest, state.summary))
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
    """One or more steps of the causal :func:`.naive.unordered_block_attention`, continued from ``state``.

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
        newest = state.steps % block_size
        value = v[:, :, t].to(state.summary.dtype)
        if reduce == "mean":
            summary = torch.lerp(state.summary, value, share(newest, state.summary))
        else:
            summary = state.summary.masked_fill((newest == 0)[:, None, None], 0) + value
        outputs.append(summary.to(v.dtype))
        reads.append(state.read)
        state = advance(state, summary, project, block_size, real_at(t, padding_mask, state.steps), dropout_p)
    return torch.stack(outputs, dim=2), torch.stack(reads, dim=2), state


def share(place: Tensor, like: Tensor) -> Tensor:
    """The weight 1/n of the step at ``place (B,)`` in the mean of its block's n steps so far: ``(B, 1, 1)``."""
    return (place + 1).to(like.dtype).reciprocal()[:, None, None]


def real_at(t: int, padding_mask: Tensor | None, like: Tensor) -> Tensor:
    """``(B,)`` bool, True = step ``t`` is real."""
    return torch.ones_like(like, dtype=torch.bool) if padding_mask is None else ~padding_mask[:, t]


def advance(
    state: BlockState, summary: Tensor, project: Projection, block_size: int, real: Tensor, dropout_p: float
) -> BlockState:
    """Count a step and store the new ``summary (B, H, D)``, in rows where the step is ``real (B,)``."""
    steps = state.steps + real
    state = state._replace(steps=steps, summary=torch.where(real[:, None, None], summary, state.summary))
    closed = real & (steps % block_size == 0)
    return close_blocks(state, project, closed, steps // block_size, dropout_p) if closed.any() else state


def close_blocks(state: BlockState, project: Projection, closed: Tensor, count: Tensor, dropout_p: float) -> BlockState:
    """Append the summary and read Z in the rows ``closed (B,)``; ``count (B,)`` is the number of complete blocks."""
    q, k, v = project(state.summary[:, :, None].to(state.read.dtype))
    grown = max(0, int(count.max()) - state.block_keys.shape[2])
    block_keys, block_values = (F.pad(x, (0, 0, 0, grown)) for x in (state.block_keys, state.block_values))
    number = torch.arange(block_keys.shape[2], device=count.device)
    here = (closed[:, None] & (number == count[:, None] - 1))[:, None, :, None]
    block_keys, block_values = torch.where(here, k, block_keys), torch.where(here, v, block_values)
    # Rows without complete blocks attend to the first place, because a softmax over nothing is NaN; they are not used.
    empty = number >= count.clamp(min=1)[:, None]
    z, _ = softmax_attention(q, block_keys, block_values, padding_mask=empty, dropout_p=dropout_p)
    read = torch.where(closed[:, None, None], z[:, :, 0], state.read)
    return state._replace(block_keys=block_keys, block_values=block_values, read=read)

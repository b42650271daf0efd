"""Block attention, causal generation: one step at a time, with a new summary each time a block is complete.

While no step is padded, all rows are at the same place of a block, and the sizes of the state's tensors say where.
From the first padded step on each row has its own place, which only the device knows. So that nothing waits for it,
every step then computes the tensors for the end of a block, and masks say in which rows a block ended.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from ..softmax_attention import softmax_attention
from .two_level_attention import Finish, Projection


class BlockState(NamedTuple):
    """The state of generation: the open block of n steps and N complete blocks."""

    keys: Tensor  # (B, H, n, D), keys of the open block; none if blocks are unordered
    values: Tensor  # (B, H, n, D), their values
    members: Tensor  # (B, H, n, D), vectors whose mean or sum is the summary of the block
    block_keys: Tensor  # (B, H, N, D), keys of the summaries of complete blocks
    block_values: Tensor  # (B, H, N, D), values of these summaries
    read: Tensor  # (B, H, 1, D), ``finish(Z)`` for the steps of the open block
    # From the first padded step on; then n is the block size, and N increases at every step.
    steps: Tensor | None = None  # (B,) int64, the number of real steps so far
    unused: Tensor | None = None  # (B, N) bool, True = not a complete block of this row


class BlockStateWithRoom(BlockState):
    """A :class:`BlockState` with places for N complete blocks; ``unused`` says which are free."""


class PlaceInBlock(NamedTuple):
    """The place of the newest step of each row in its block."""

    is_current: Tensor  # (B, 1, S, 1) bool, True = this place
    is_later: Tensor  # (B, S) bool, True = a later place
    num_filled: Tensor  # (B, 1, 1, 1) int64, places up to this one


def block_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    project: Projection,
    state: BlockState | None,
    *,
    block_size: int,
    finish: Finish,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, BlockState]:
    """One step of causal :func:`.block_attention_reference`.

    Args:
        q, k, v, project, padding, dropout_p: as in the reference, with T = 1. A padded step is not counted, and its
            output is undefined.
        state: the state after the previous steps; None = there are none.
        block_size: steps in a block.
        finish: a map of Z that is applied once for each block.

    Returns:
        Y and ``finish(Z)``, each ``(B, H, 1, D)`` in the dtype of ``q``, and the state after this step.
    """
    state, place = before_step(state, v, block_size, finish, padding)
    keys, values = write_at_place(k, state.keys, place), write_at_place(v, state.values, place)
    later = None if place is None else place.is_later
    y, _ = softmax_attention(q, keys, values, padding=later, dropout_p=dropout_p)
    state = state._replace(keys=keys, values=values, members=write_at_place(y, state.members, place))
    return y, state.read, finish_step(state, project, "mean", block_size, finish, padding, dropout_p)


def unordered_block_attention_step(
    v: Tensor,
    project: Projection,
    state: BlockState | None,
    *,
    reduce: str,
    block_size: int,
    finish: Finish,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, BlockState]:
    """One step of causal :func:`.unordered_block_attention_reference`; see :func:`block_attention_step`."""
    state, place = before_step(state, v, block_size, finish, padding)
    state = state._replace(members=write_at_place(v, state.members, place))
    y = reduce_members(state.members, reduce, place)
    return y, state.read, finish_step(state, project, reduce, block_size, finish, padding, dropout_p)


def before_step(
    state: BlockState | None, v: Tensor, block_size: int, finish: Finish, padding: PaddingLike
) -> tuple[BlockState, PlaceInBlock | None]:
    """The state before a step with values ``v (B, H, 1, D)``, and the place of the step; None = after the others."""
    padding = Padding.of(padding)
    if state is None:
        none = v[:, :, :0]
        state = BlockState(none, none, none, none, none, read=finish(torch.zeros_like(v)))
    if padding.mask is not None and state.steps is None:
        state = with_fixed_places(state, block_size)
    return state, place_of(state)


def with_fixed_places(state: BlockState, block_size: int) -> BlockState:
    """The same state with a place for each step of a block and a count for each row."""
    batch, _, filled, _ = state.members.shape
    complete = state.block_keys.shape[2]
    keys, values, members = (F.pad(x, (0, 0, 0, block_size - x.shape[2])) for x in state[:3])
    steps = torch.full((batch,), complete * block_size + filled, device=members.device)
    # One place is never used: torch.export treats a size of 0 or 1 as a constant, and so N is 2 after the first step.
    block_keys, block_values = (F.pad(x, (0, 0, 0, 1)) for x in (state.block_keys, state.block_values))
    unused = torch.arange(complete + 1, device=members.device).eq(complete).repeat(batch, 1)
    return BlockState(keys, values, members, block_keys, block_values, state.read, steps, unused)


def allocate_block_state(state: BlockState, block_size: int, max_steps: int) -> BlockStateWithRoom:
    """The same state with a fixed shape, for at most ``max_steps`` steps."""
    if state.steps is None or state.unused is None:
        state = with_fixed_places(state, block_size)
    assert state.unused is not None
    if not isinstance(state, BlockStateWithRoom):
        state = with_blocks_in_order(state)
    assert state.unused is not None
    free = max(0, -(-max_steps // block_size) - state.unused.shape[1])
    block_keys, block_values = (F.pad(x, (0, 0, 0, free)) for x in (state.block_keys, state.block_values))
    unused = F.pad(state.unused, (0, free), value=True)
    return BlockStateWithRoom(*state._replace(block_keys=block_keys, block_values=block_values, unused=unused))


def with_blocks_in_order(state: BlockState) -> BlockState:
    """The same state with the complete blocks of each row first, in their order."""
    assert state.unused is not None
    order = state.unused.long().argsort(dim=1, stable=True)
    index = order[:, None, :, None].expand_as(state.block_keys)
    return state._replace(
        block_keys=state.block_keys.gather(2, index),
        block_values=state.block_values.gather(2, index),
        unused=state.unused.gather(1, order),
    )


def place_of(state: BlockState) -> PlaceInBlock | None:
    """The place of the step that follows the state; None = after the others in all rows."""
    if state.steps is None:
        return None
    block_size = state.members.shape[2]
    newest = (state.steps % block_size)[:, None]
    place = torch.arange(block_size, device=newest.device)
    return PlaceInBlock((place == newest)[:, None, :, None], place > newest, newest[:, :, None, None] + 1)


def write_at_place(x: Tensor, members: Tensor, place: PlaceInBlock | None) -> Tensor:
    """``members (B, H, n, D)`` with ``x (B, H, 1, D)`` at its place."""
    # A padded step has the place of the next real one, which overwrites it before it is read.
    return torch.cat([members, x], dim=2) if place is None else torch.where(place.is_current, x, members)


def reduce_members(members: Tensor, reduce: str, place: PlaceInBlock | None = None) -> Tensor:
    """The "mean" or "sum" of ``members (B, H, n, D)``, or of the members up to ``place``: ``(B, H, 1, D)``."""
    if place is not None:
        seen = members.masked_fill(place.is_later[:, None, :, None], 0)
        total = seen.sum(2, keepdim=True, dtype=accumulation_dtype(seen))
        return (total / place.num_filled if reduce == "mean" else total).to(seen.dtype)
    return members.mean(2, keepdim=True) if reduce == "mean" else members.sum(2, keepdim=True)


def finish_step(
    state: BlockState,
    project: Projection,
    reduce: str,
    block_size: int,
    finish: Finish,
    padding: PaddingLike,
    dropout_p: float,
) -> BlockState:
    """Count a step; in rows where it is real and ends its block, open the next block."""
    padding = Padding.of(padding)
    if state.steps is None and state.members.shape[2] < block_size:
        return state  # no block ends
    q, k, v = project(reduce_members(state.members, reduce))
    if isinstance(state, BlockStateWithRoom):
        return finish_step_with_room(state, q, k, v, block_size, finish, padding, dropout_p)
    keys, values = torch.cat([state.block_keys, k], dim=2), torch.cat([state.block_values, v], dim=2)
    state = state._replace(block_keys=keys, block_values=values)
    if state.steps is None or state.unused is None:
        z, _ = softmax_attention(q, keys, values, dropout_p=dropout_p)
        none = state.members[:, :, :0]
        return state._replace(keys=none, values=none, members=none, read=finish(z))

    real = True if padding.mask is None else ~padding.mask[:, 0]
    steps = state.steps + real
    ended = (steps % block_size == 0) & real
    unused = torch.cat([state.unused, ~ended[:, None]], dim=1)
    # Where no block ended the result is not used; nothing is masked there, because a softmax over nothing is NaN.
    z, _ = softmax_attention(q, keys, values, padding=unused & ended[:, None], dropout_p=dropout_p)
    read = torch.where(ended[:, None, None, None], finish(z), state.read)
    return state._replace(read=read, steps=steps, unused=unused)


def finish_step_with_room(
    state: BlockStateWithRoom,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_size: int,
    finish: Finish,
    padding: Padding,
    dropout_p: float,
) -> BlockState:
    """:func:`finish_step` for a state with room; ``q, k, v (B, H, 1, D)`` are maps of the open block's summary."""
    assert state.steps is not None and state.unused is not None
    real = True if padding.mask is None else ~padding.mask[:, 0]
    steps = state.steps + real
    ended = (steps % block_size == 0) & real
    block = torch.arange(state.unused.shape[1], device=steps.device)
    is_completed_block = (block == (steps // block_size - 1)[:, None]) & ended[:, None]
    keys, values = (
        torch.where(is_completed_block[:, None, :, None], new, old)
        for new, old in ((k, state.block_keys), (v, state.block_values))
    )
    unused = state.unused & ~is_completed_block
    # Where no block ended the result is not used, and nothing is masked: a softmax over nothing is NaN.
    z, _ = softmax_attention(q, keys, values, padding=unused & ended[:, None], dropout_p=dropout_p)
    read = torch.where(ended[:, None, None, None], finish(z), state.read)
    return state._replace(block_keys=keys, block_values=values, read=read, steps=steps, unused=unused)

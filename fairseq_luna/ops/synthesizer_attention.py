"""Synthesizer: softmax attention whose scores belong to pairs of positions, not of tokens."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .dropout import drop
from .dtypes import accumulation_dtype, full_precision
from .masked_softmax import unseen_keys
from .padding import Padding, PaddingLike, computed_once
from .softmax_attention import scaled_dot_product_attention


def synthesizer_attention_reference(
    scores: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention with given scores (arXiv 2005.00743, equation 2).

        y_i = sum_j w_ij v_j,    w_i = softmax_j( R[p_i, p_j] )

    ``p_i`` is the position of step i among the real steps of its sentence.

    Args:
        scores: R, ``(B, H, T, T)``, or ``(1, H, T, T)`` if all sentences have the same.
        v: ``(B, H, T, D)``.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: the softmax is over j <= i.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, zero at padding; softmax and sums are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    batch, heads, steps, _ = v.shape
    p = _positions_reference(v, padding_mask)
    rows = p[:, None, :, None].expand(-1, heads, -1, steps)
    step_scores = scores.expand(batch, -1, -1, -1).gather(2, rows).gather(3, rows.mT)
    return _attention_reference(step_scores, v, padding_mask, causal, dropout_p)


def position_attention_reference(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """:func:`synthesizer_attention_reference` with the scores ``R[p_i, p_j] = q_i . keys[p_j]``: keys are of positions.

    Args:
        q: ``(B, H, T, R)``, of tokens, not by position.
        keys: ``(H, T, R)``, by position.
        v, padding, causal, dropout_p: as in :func:`synthesizer_attention_reference`.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, zero at padding; softmax and sums are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(v)
    step_scores = q.to(dtype) @ keys.to(dtype)[:, _positions_reference(v, padding_mask)].transpose(0, 1).mT
    return _attention_reference(step_scores, v, padding_mask, causal, dropout_p)


def _positions_reference(v: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The position of each step of ``v (B, H, T, D)`` among the real ones: ``(B, T)``."""
    return Padding(padding_mask).with_mask(v.shape[0], v.shape[2], v.device).positions


def _attention_reference(
    scores: Tensor, v: Tensor, padding_mask: Tensor | None, causal: bool, dropout_p: float
) -> Tensor:
    """Softmax attention with the scores of steps, ``(B, H, T, T)``."""
    steps, dtype = v.shape[2], accumulation_dtype(v)
    padded = Padding(padding_mask).with_mask(v.shape[0], steps, v.device).existing_mask
    hidden = padded[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones(steps, steps, dtype=torch.bool, device=v.device).triu(1)
    hidden = hidden & ~padded[:, None, :, None]  # a padded query sees all: a softmax over nothing is NaN
    weights = scores.to(dtype).masked_fill(hidden, -torch.inf).softmax(-1)
    y = F.dropout(weights, dropout_p) @ v.to(dtype)
    return y.masked_fill(padded[:, None, :, None], 0).to(v.dtype)


def synthesizer_attention(
    scores: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`synthesizer_attention_reference`: real steps are moved together first.

    Then places are positions. With scores that all sentences share, the weights too are computed once for the batch, if
    it is causal or has no padding; dropout then drops the same weights for all sentences.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(v)
    hidden = None if causal or padding.mask is None else _behind_real_steps(padding).existing_mask[:, None, None]
    if causal:  # after the real steps there is only padding, which no real step sees
        hidden = unseen_keys(Padding(), v.shape[2], v.device)
    with full_precision(v):
        scores = scores.to(dtype)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        weights = drop(scores.softmax(-1), dropout_p)
        y = weighted_sums(weights, padding.pack_left(v).to(dtype)).to(v.dtype)
    return padding.restore_places(y)


def position_attention(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`position_attention_reference`, without a T x T tensor."""
    padding = Padding.of(padding)
    behind = Padding() if causal or padding.mask is None else _behind_real_steps(padding)
    y = scaled_dot_product_attention(
        padding.pack_left(q),
        keys.to(q.dtype).expand(q.shape[0], -1, -1, -1),
        padding.pack_left(v),
        attn_mask=behind.scores(q.dtype),
        dropout_p=dropout_p,
        is_causal=causal,
        scale=1.0,
    )
    return padding.restore_places(y)


@computed_once
def _behind_real_steps(padding: Padding) -> Padding:
    """The padding of a batch whose real steps were moved together: the positions after them."""
    lengths = padding.lengths.clamp(min=1)  # a softmax over nothing is NaN
    return Padding(torch.arange(padding.existing_mask.shape[1], device=lengths.device) >= lengths[:, None])


def weighted_sums(weights: Tensor, v: Tensor) -> Tensor:
    """``weights (B or 1, H, T, S)`` times ``v (B, H, S, D)``: ``(B, H, T, D)``; one product for shared weights."""
    if weights.shape[0] == v.shape[0]:
        return weights @ v
    batch, heads, steps, size = v.shape
    values = v.permute(1, 2, 0, 3).reshape(heads, steps, batch * size)
    return (weights[0] @ values).unflatten(-1, (batch, size)).permute(2, 0, 1, 3)


class PositionValues(NamedTuple):
    """The state of generation: the values of the real steps so far, by position. N is the number of all steps."""

    v: Tensor  # (B, H, N, D); undefined, but finite, from ``steps`` on
    steps: Tensor | None  # (B,) int64, the number of real steps; None = N in all rows


class PositionValuesWithRoom(PositionValues):
    """:class:`Values` with N places; the first ``steps`` are in use."""


def allocate_values(state: PositionValues, max_steps: int) -> PositionValuesWithRoom:
    """The same state with memory for ``max_steps`` steps; no step changes its shape."""
    steps = state.steps
    if steps is None:
        steps = torch.full(state.v.shape[:1], state.v.shape[2], device=state.v.device)
    return PositionValuesWithRoom(F.pad(state.v, (0, 0, 0, max(0, max_steps - state.v.shape[2]))), steps)


def columns_of_next(state: PositionValues | None) -> int:
    """The number of positions that the scores of the next step are for."""
    if state is None:
        return 1
    return state.v.shape[2] + (not isinstance(state, PositionValuesWithRoom))


def next_positions(state: PositionValues | None, like: Tensor) -> Tensor:
    """The position of the next step, whose scores it uses: ``(B or 1, 1)`` int64 on the device of ``like``."""
    if state is not None and state.steps is not None:
        return state.steps[:, None]
    return torch.full((1, 1), 0 if state is None else state.v.shape[2], device=like.device)


def synthesizer_attention_step(
    scores: Tensor,
    v: Tensor,
    state: PositionValues | None,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, PositionValues]:
    """One step of causal :func:`synthesizer_attention_reference`; the state is None before the first.

    Args:
        scores: ``(B or 1, H, 1, columns)``, of the step at its position, :func:`next_positions`, with the first
            :func:`columns_of_next` positions.
        v, padding, dropout_p: as in :func:`synthesizer_attention_reference`, with T = 1.
        state: the state after the N previous steps.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``v``, zero at padding; and the state after this step.
    """
    padding = Padding.of(padding)
    dtype, position = accumulation_dtype(v), next_positions(state, v)
    state = _with_step(state, v, padding)
    places = torch.arange(state.v.shape[2], device=v.device)
    with full_precision(v):
        scores = scores.to(dtype).masked_fill((places > position)[:, None, None], -torch.inf)
        y = weighted_sums(drop(scores.softmax(-1), dropout_p), state.v.to(dtype)).to(v.dtype)
    return padding.zero(y), state


def _with_step(state: PositionValues | None, v: Tensor, padding: Padding) -> PositionValues:
    v = padding.zero(v)
    if isinstance(state, PositionValuesWithRoom):
        assert state.steps is not None
        newest = torch.arange(state.v.shape[2], device=v.device) == state.steps[:, None]
        filled = state.steps + (1 if padding.mask is None else ~padding.mask[:, 0])
        return PositionValuesWithRoom(torch.where(newest[:, None, :, None], v, state.v), filled)
    before = v[:, :, :0] if state is None else state.v
    steps = None if state is None else state.steps
    values = torch.cat([before, v], dim=2)
    if steps is None and padding.mask is None:
        return PositionValues(values, None)
    if steps is None:
        steps = torch.full(v.shape[:1], before.shape[2], device=v.device)
    newest = torch.arange(values.shape[2], device=v.device) == steps[:, None]
    values = torch.where(newest[:, None, :, None], v, values)
    return PositionValues(values, steps + (1 if padding.mask is None else ~padding.mask[:, 0]))

"""Luna's causal attention in plain torch: reference, training form and generation step.

A softmax over time would depend on later steps. The pack activations depend on one score each, and are 1 at score 0.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..feature_maps import elu_features
from ..padding import Padding, PaddingLike, computed_once
from ..prefix_attention import (
    PrefixMean,
    initial_prefix_mean,
    prefix_mean_of,
    step_weights,
    sums_and_states,
    update_prefix_mean,
)

LN_2 = math.log(2.0)


def luna_causal_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pq: Tensor,
    pk: Tensor,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Luna's causal attention (arXiv 2106.01540, section 3.4).

        A_t = w(pq pk_t / sqrt(D))                              L pack weights of step t
        S_t = mean over real j <= t of k_j A_j^T                D x L
        U_t = softmax over L of (q_t S_t / sqrt(D))             unpack weights
        M_t = mean over real j <= t of A_j v_j^T                L x D
        y_t = U_t M_t

    Args:
        q, k, v: ``(B, H, T, D)`` queries, keys and values of the sequence.
        pq: ``(B, H, L, D)`` queries of the packed slots.
        pk: ``(B, H, T, D)`` keys of the sequence for the pack attention.
        activation: w, "softplus" or "elu".
        padding: ``(B, T)`` bool, True = padding: the step is neither added nor counted.
        packed_padding: ``(B, L)`` bool, True = padding: the slot is not read.
        dropout_p: dropout probability of the pack weights and the unpack weights.

    Returns:
        ``y (B, H, T, D)`` in the dtype of ``q``, and the unpack weights ``U (B, H, T, L)`` before dropout in the dtype
        of the sums, which is fp32 if ``q`` is half precision.

    Raises:
        ValueError: if ``activation`` is unknown.
    """
    packed_padding_mask = Padding.of(packed_padding).mask
    padding_mask = Padding.of(padding).mask
    batch, heads, _, size = q.shape
    slots = pq.shape[2]
    dtype = accumulation_dtype(q)
    scale = 1 / math.sqrt(size)
    pack = F.dropout(positive_reference(activation, pk.to(dtype) @ pq.to(dtype).transpose(-1, -2) * scale), dropout_p)

    mean_k, mean_v = pack.new_zeros(batch, heads, size, slots), pack.new_zeros(batch, heads, slots, size)
    count = pack.new_zeros(batch, 1, 1, 1)
    scores, means = [], []
    for t, (pack_t, q_t, k_t, v_t) in enumerate(zip(*(x.to(dtype).unbind(2) for x in (pack, q, k, v)), strict=True)):
        real = torch.ones_like(count)
        if padding_mask is not None:
            real = (~padding_mask[:, t]).to(dtype).view(batch, 1, 1, 1)
        count = count + real
        weight = real / count.clamp(min=1)
        mean_k = mean_k + weight * (k_t[..., :, None] * pack_t[..., None, :] - mean_k)
        mean_v = mean_v + weight * (pack_t[..., :, None] * v_t[..., None, :] - mean_v)
        scores.append((q_t[:, :, None] @ mean_k)[:, :, 0] * scale)
        means.append(mean_v)
    score = torch.stack(scores, dim=2)
    if packed_padding_mask is not None:
        score = score.masked_fill(packed_padding_mask[:, None, None, :], -torch.inf)
    unpack = score.softmax(-1)
    y = (F.dropout(unpack, dropout_p)[:, :, :, None] @ torch.stack(means, dim=2))[:, :, :, 0]
    return y.to(q.dtype), unpack


def positive_reference(activation: str, scores: Tensor) -> Tensor:
    """w(s): ``log2(2^s + 1)`` or ``elu(s) + 1``."""
    if activation == "softplus":
        return torch.logaddexp2(scores, torch.zeros_like(scores))
    if activation == "elu":
        above = scores > 0
        return torch.where(above, scores + 1, scores.masked_fill(above, 0).exp())
    raise ValueError(f"activation {activation}: choose one of softplus, elu")


def luna_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pq: Tensor,
    pk: Tensor,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The same function as :func:`luna_causal_attention_reference`, by two prefix attentions in blocks of time.

    It is linear in T in time and memory: a D x L state per block of steps, not per step.
    """
    return luna_causal_attention_from_scores(
        q,
        k,
        v,
        pack_scores(pq, pk),
        activation=activation,
        padding=padding,
        packed_padding=packed_padding,
        dropout_p=dropout_p,
    )


def luna_causal_attention_from_scores(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """:func:`luna_causal_attention` with the pack scores ``(B, H, T, L)`` in place of ``pq`` and ``pk``."""
    dtype = accumulation_dtype(q)
    factors = step_factors(Padding.of(padding), *q.shape[2:], dtype, q.device)
    pack = drop(pack_activation(activation)(scores), dropout_p)
    pack = pack.to(dtype) if factors.pack is None else pack * factors.pack
    keys = k.to(dtype)
    slot_scores, states = sums_and_states(q * factors.query, keys, pack)
    unpack = unpack_weights(slot_scores, Padding.of(packed_padding).scores(dtype))
    weights = drop(unpack, dropout_p) * factors.unpack
    if k is v:  # the state of the values is the transposed state of the keys
        y, _ = sums_and_states(weights, pack, keys, states=None if states is None else states.mT)
    else:
        y, _ = sums_and_states(weights, pack, v.to(dtype))
    return y.to(q.dtype), unpack


class StepFactors(NamedTuple):
    """Factors for the tensors of the steps, the same in all layers: each ``(1 or B, 1, T, 1)``."""

    pack: Tensor | None  # 1, or 0 at padding: both sums contain the pack weights; None without padding
    query: Tensor  # 1 / (n_t sqrt(D))
    unpack: Tensor  # 1 / n_t


@computed_once
def step_factors(padding: Padding, steps: int, size: int, dtype: torch.dtype, device: torch.device) -> StepFactors:
    """The factors, in the dtype of the sums, so that a product with them converts half precision."""
    weights = step_weights(padding, steps, dtype, device)
    return StepFactors(pack=padding.real_factor(dtype), query=weights * size**-0.5, unpack=weights)


def base_2_softplus(scores: Tensor) -> Tensor:
    """``log(1 + exp(ln 2 * s)) / ln 2``."""
    if torch.compiler.is_compiling():
        # A graph records a gradient in the layout of the scores; torch 2.13 returns another one if they are transposed.
        scores = scores.contiguous()
    # Above the threshold torch returns s itself, which is exact in fp64 from 40 on.
    return F.softplus(scores, beta=LN_2, threshold=40.0)


def elu(scores: Tensor) -> Tensor:
    """``elu(s) + 1``: exp(s) below 0, s + 1 above."""
    return elu_features(scores).to(scores.dtype)


PACK_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"softplus": base_2_softplus, "elu": elu}


def pack_activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation called ``name``; ValueError if there is none."""
    if name not in PACK_ACTIVATIONS:
        raise ValueError(f"activation {name}: choose one of {', '.join(PACK_ACTIVATIONS)}")
    return PACK_ACTIVATIONS[name]


def pack_scores(pq: Tensor, pk: Tensor) -> Tensor:
    """``pq pk_t / sqrt(D)`` for slots ``pq (B, H, L, D)`` and steps ``pk (B, H, T, D)``: ``(B, H, T, L)``."""
    return pk @ scaled(pq).mT


def scaled(pq: Tensor) -> Tensor:
    """``pq / sqrt(D)``."""
    return pq * pq.shape[-1] ** -0.5


def pack_weights(pq: Tensor, pk: Tensor, activation: str) -> Tensor:
    """The weight of each step ``pk (B, H, T, D)`` in each slot ``pq (B, H, L, D)``: ``(B, H, T, L)``."""
    return pack_activation(activation)(pack_scores(pq, pk))


def unpack_weights(scores: Tensor, added: Tensor | None, *, scale: float = 1.0) -> Tensor:
    """Softmax of ``scale * scores`` over the slots that are not padding.

    Args:
        scores: ``q_t S_t (B, H, T, L)``; in fp32 if q is half precision, because rounded scores and a softmax in half
            precision cause most of the error in the gradients of q and k.
        added: ``(B, 1, 1, L)``, :meth:`~..padding.Padding.scores` of the slots.
        scale: the part of 1 / (n_t sqrt(D)) that the scores do not contain yet.

    Returns:
        ``(B, H, T, L)``.
    """
    if added is None:
        return (scores if scale == 1 else scores * scale).softmax(-1)
    return torch.add(added, scores, alpha=scale).softmax(-1)


def initial_state(pq: Tensor, *, tied: bool) -> PrefixMean:
    """The state before the first step for slots ``pq (B, H, L, D)``; ``tied``: keys are values.

    The state is one running mean of ``A_j^T [k_j, v_j]``, whose first D columns are the keys of the slots and whose
    last D columns are their values; with tied keys and values these are the same D columns.
    """
    return initial_prefix_mean(pq.mT, side_by_side(pq, pq, tied=tied))


def state_after(
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    *,
    tied: bool,
    activation: str = "softplus",
    padding: PaddingLike = None,
) -> PrefixMean:
    """The state after a sequence whose outputs are not needed; arguments as in :func:`luna_causal_attention_step`."""
    pack = pack_activation(activation)(scores)
    return prefix_mean_of(pack, side_by_side(k, v, tied=tied), padding=padding)


def luna_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    state: PrefixMean,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, PrefixMean]:
    """One step of :func:`luna_causal_attention_reference`, in O(L D).

    Args:
        q, k, v, activation, padding, dropout_p: as in :func:`luna_causal_attention_reference`, with T = 1.
        scores: the pack scores ``(B, H, 1, L)``, see :func:`pack_scores`.
        state: the state after the previous steps, ``(B, H, L, D)`` for tied keys and values, otherwise
            ``(B, H, L, 2 D)``; in fp32 if the inputs are half precision.
        packed_padding: ``(B, L)`` of the slots, with a row for each row of ``q``.

    Returns:
        ``y (B, H, 1, D)``, the unpack weights ``(B, H, 1, L)`` in the dtype of the state, and the state after this
        step.
    """
    size, dtype = q.shape[-1], state.mean.dtype
    pack = drop(pack_activation(activation)(scores), dropout_p).to(dtype)
    keys_and_values = side_by_side(k, v, tied=state.mean.shape[-1] == size)
    state = update_prefix_mean(pack, keys_and_values, state, padding=padding)
    keys, values = state.mean[..., :size], state.mean[..., -size:]
    with full_precision(q):
        unpack = unpack_weights(q.to(dtype) @ keys.mT, Padding.of(packed_padding).scores(dtype), scale=size**-0.5)
        y = drop(unpack, dropout_p) @ values
    return y.to(q.dtype), unpack, state


def side_by_side(k: Tensor, v: Tensor, *, tied: bool) -> Tensor:
    """``[k, v] (B, H, T, 2 D)``, or ``k`` alone if it is ``v``."""
    return k if tied else torch.cat([k, v], dim=-1)

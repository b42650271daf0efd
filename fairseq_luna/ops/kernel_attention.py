"""Attention by products of features of queries and keys: linear, Performer, RFA, and efficient attention."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import default_block_length
from .dropout import drop_steps
from .dtypes import accumulation_dtype, full_precision
from .padding import Padding, PaddingLike
from .prefix_attention import (
    PrefixMean,
    initial_prefix_mean,
    prefix_attention,
    prefix_mean_of,
    step_counts,
    update_prefix_mean,
)

NORMALISERS = ("sum", "bounded", "each feature")


# A mean below this has no real step, or none with a weight; the gradient of a quotient by it could overflow.
LEAST_MEAN = 1e-30


def kernel_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normalizer: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention whose weights are products of features, in place of a softmax.

        y_i = sum over j of w_ij d_j v_j,     with j over the real steps and
        w_ij = q_i . k_j / (sum over l of q_i . k_l)             "sum"
        w_ij = q_i . k_j / max(|sum over l of q_i . k_l|, 1)     "bounded", for signed features
        w_ij = sum over r of q_ir k_jr / (sum over l of k_lr)    "each feature"

    where q and k are features of :mod:`.feature_maps`; the attention decides which: linear (arXiv 2006.16236) and
    Performer (arXiv 2009.14794) are "sum", RFA (arXiv 2103.02143) is "bounded", efficient attention (arXiv 1812.01243)
    is "each feature". A denominator of 0 counts as 1; the other forms do the same for one below 1e-30 per step. d is 1,
    or with dropout 0 or 1/(1 - p).

    Args:
        q: ``(B, H, T, R)`` features of the queries.
        k: ``(B, H, S, R)`` features of the keys.
        v: ``(B, H, S, E)``.
        normalizer: "sum", "bounded" or "each feature".
        padding: ``(B, S)`` bool, True = padding: the step has no weight. If all steps are padding, y is 0.
        dropout_p: probability that a head leaves out a step, for all queries.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``. Sums are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    return weighted_values_reference(q, k, v, normalizer, padding_mask, dropout_p, causal=False)


def kernel_causal_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normalizer: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """:func:`kernel_attention_reference` with j and l over the real steps up to i, of the same sequence: S = T.

    Before the first real step y is 0. As in the code of RFA's authors, "bounded" divides by the larger of 1 and the
    sum itself, not its absolute value.
    """
    padding_mask = Padding.of(padding).mask
    return weighted_values_reference(q, k, v, normalizer, padding_mask, dropout_p, causal=True)


def weighted_values_reference(
    q: Tensor, k: Tensor, v: Tensor, normalizer: str, padding_mask: Tensor | None, dropout_p: float, *, causal: bool
) -> Tensor:
    """The values under the weights of each query, ``(B, H, T, E)``; arguments as in the two functions above."""
    dtype = accumulation_dtype(q)
    q, k, values = q.to(dtype), k.to(dtype), v.to(dtype)
    if padding_mask is not None:
        k = k.masked_fill(padding_mask[:, None, :, None], 0)
    if normalizer == "each feature":
        totals = k.cumsum(2) if causal else k.sum(2, keepdim=True)
        products = (q / nonzero_reference(totals)) @ k.mT
    else:
        products = q @ k.mT
    if causal:
        products = products.tril()
    if normalizer == "sum":
        products = products / nonzero_reference(products.sum(-1, keepdim=True))
    elif normalizer == "bounded":
        totals = products.sum(-1, keepdim=True)
        products = products / (totals if causal else totals.abs()).clamp(min=1)
    kept = F.dropout(values.new_ones(values.shape[:-1]), dropout_p)[..., None]
    return (products @ (kept * values)).to(v.dtype)


def nonzero_reference(denominator: Tensor) -> Tensor:
    """``denominator`` with 1 instead of 0."""
    return torch.where(denominator == 0, 1, denominator)


def kernel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normalizer: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`kernel_attention_reference`, linear in T and S.

    All queries read one mean over the steps, whose size does not depend on S.

    Raises:
        ValueError: if the normalizer is unknown.
    """
    state = kernel_mean_of(k, v, padding=padding, dropout_p=dropout_p)
    return read_kernel_mean(q, state, normalizer=normalizer).to(v.dtype)


def kernel_mean_of(k: Tensor, v: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0) -> PrefixMean:
    """The mean of ``k_j [v_j, 1]^T`` over ``k (B, H, S, R)`` and ``v (B, H, S, E)``, which every query reads.

    Its size does not depend on S: ``(B, H, R, E + 1)``.
    """
    return prefix_mean_of(k, with_ones(v, accumulation_dtype(k), dropout_p), padding=padding)


def read_kernel_mean(q: Tensor, state: PrefixMean, *, normalizer: str, causal: bool = False) -> Tensor:
    """The attention of queries ``q (B, H, T, R)`` to the steps in ``state``: ``(B, H, T, E)`` in the state's dtype.

    ``causal`` chooses the denominators of :func:`kernel_causal_attention_reference`.
    """
    with full_precision(q):
        return _normalized_queries(q, state, normalizer, causal=causal) @ state.mean[..., :-1]


def kernel_weights(q: Tensor, k: Tensor, state: PrefixMean, *, normalizer: str) -> Tensor:
    """The weight of each step for each query before dropout, quadratic: ``(B, H, T, S)`` in the state's dtype.

    With "bounded" a weight may be negative, and the weights of a query sum to a number from -1 to 1.

    Args:
        q: ``(B, H, T, R)``.
        k: ``(B, H, S, R)``, 0 at padding.
        state: :func:`kernel_mean_of` these keys.
        normalizer: as in :func:`kernel_attention_reference`.
    """
    with full_precision(q):
        return _normalized_queries(q, state, normalizer, causal=False) @ k.to(state.mean.dtype).mT / _num_steps(state)


def _normalized_queries(q: Tensor, state: PrefixMean, normalizer: str, *, causal: bool) -> Tensor:
    """``q`` over the denominators: its product with the mean of ``k_j v_j^T`` is the output."""
    q, total = q.to(state.mean.dtype), state.mean[..., -1:]
    if normalizer == "each feature":
        return q / denominator(total, _num_steps(state), normalizer, causal=causal).mT
    return q / denominator(q @ total, _num_steps(state), normalizer, causal=causal)


def _num_steps(state: PrefixMean) -> Tensor:
    """The number of steps, at least 1: ``(B, 1, 1, 1)``."""
    return state.steps.clamp(min=1).view(-1, 1, 1, 1)


def kernel_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normalizer: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`kernel_causal_attention_reference`, linear in T, by prefix attention.

    Raises:
        ValueError: if the normalizer is unknown.
    """
    dtype = accumulation_dtype(q)
    q, k = q.to(dtype), k.to(dtype)
    padding = Padding.of(padding)
    counts = step_counts(padding, q.shape[2], dtype, q.device)
    if normalizer == "each feature":
        one = k.new_ones(*k.shape[:-1], 1)
        # torch.compile refuses the same tensor as two arguments.
        means = prefix_attention(one, one.view_as(one), k, padding=padding)
        values = drop_steps(v, dropout_p).to(dtype)
        q = q / denominator(means, counts, normalizer, causal=True)
        out = prefix_attention(q, k, values, padding=padding)
    else:
        values = with_ones(v, dtype, dropout_p)
        # Blocks as long as a value is wide, so that the states take as much memory as the features: with more features
        # than channels this was faster than the balance that prefix attention chooses.
        length = default_block_length(q.shape[2], v.shape[-1], v.shape[-1])
        sums = prefix_attention(q, k, values, padding=padding, block_length=length)
        out = sums[..., :-1] / denominator(sums[..., -1:], counts, normalizer, causal=True)
    return out.to(v.dtype)


def with_ones(v: Tensor, dtype: torch.dtype, dropout_p: float) -> Tensor:
    """``v (B, H, T, E)`` with a column of ones, ``(B, H, T, E + 1)``: dropout drops steps of v, but not the ones.

    The mean of this column is the mean of the weights.
    """
    return torch.cat([drop_steps(v, dropout_p).to(dtype), v.new_ones(*v.shape[:-1], 1, dtype=dtype)], dim=-1)


def denominator(mean: Tensor, steps: Tensor, normalizer: str, *, causal: bool) -> Tensor:
    """The divisor of a mean of weighted values.

    Args:
        mean: the mean of the weights, or of each feature of the keys.
        steps: the number of steps in the mean, at least 1; broadcastable to ``mean``.
        normalizer: as in :func:`kernel_attention_reference`.
        causal: with "bounded", the bound applies to the sum itself, not to its absolute value.

    Returns:
        The shape of ``mean``.

    Raises:
        ValueError: if the normalizer is unknown.
    """
    if normalizer not in NORMALISERS:
        raise ValueError(f"normalizer {normalizer}: choose one of {', '.join(NORMALISERS)}")
    if normalizer == "bounded":
        return torch.maximum(mean if causal else mean.abs(), steps.reciprocal())  # of the sum: at least 1
    return mean.masked_fill(mean < LEAST_MEAN, 1)


def kernel_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: PrefixMean | None,
    *,
    normalizer: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, PrefixMean]:
    """One step of :func:`kernel_causal_attention_reference`: its arguments with T = 1.

    The state is the mean of ``k_j [v_j, 1]^T`` over the previous steps, None before the first.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``v``, and the state after this step.
    """
    k = k.to(accumulation_dtype(k))
    values = with_ones(v, k.dtype, dropout_p)
    state = update_prefix_mean(k, values, state or initial_prefix_mean(k, values), padding=padding)
    return read_kernel_mean(q, state, normalizer=normalizer, causal=True).to(v.dtype), state

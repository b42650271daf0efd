"""Bidirectional training form: one mean over all steps, which every query reads."""

from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from ..padding import PaddingLike
from ..prefix_attention import PrefixMean, prefix_mean_of
from .shared import denominator, with_ones


def kernel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normaliser: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention by products of features, linear in T and S; specified by :func:`.naive.kernel_attention`.

    Args:
        q: ``(B, H, T, R)`` features of the queries.
        k: ``(B, H, S, R)`` features of the keys.
        v: ``(B, H, S, E)``.
        normaliser, padding, dropout_p: as in :func:`.naive.kernel_attention`.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``.

    Raises:
        ValueError: if the normaliser is unknown.
    """
    state = kernel_mean_of(k, v, padding=padding, dropout_p=dropout_p)
    return read_kernel_mean(q, state, normaliser=normaliser).to(v.dtype)


def kernel_mean_of(k: Tensor, v: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0) -> PrefixMean:
    """All that queries read of ``k (B, H, S, R)`` and ``v (B, H, S, E)``: the mean of ``k_j [v_j, 1]^T``.

    Its size does not depend on S: ``(B, H, R, E + 1)``.
    """
    return prefix_mean_of(k, with_ones(v, accumulation_dtype(k), dropout_p), padding=padding)


def read_kernel_mean(q: Tensor, state: PrefixMean, *, normaliser: str, causal: bool = False) -> Tensor:
    """The attention of queries ``q (B, H, T, R)`` to the steps in ``state``: ``(B, H, T, E)`` in the state's dtype.

    ``causal`` chooses the denominators of :func:`.naive.kernel_causal_attention`.
    """
    with full_precision(q):
        return _normalised(q, state, normaliser, causal=causal) @ state.mean[..., :-1]


def kernel_weights(q: Tensor, k: Tensor, state: PrefixMean, *, normaliser: str) -> Tensor:
    """The weight of each step for each query before dropout, quadratic: ``(B, H, T, S)`` in the state's dtype.

    With "bounded" a weight may be negative, and the weights of a query sum to a number from -1 to 1.

    Args:
        q: ``(B, H, T, R)``.
        k: ``(B, H, S, R)``, 0 at padding.
        state: :func:`kernel_mean_of` these keys.
        normaliser: as in :mod:`.naive`.
    """
    with full_precision(q):
        return _normalised(q, state, normaliser, causal=False) @ k.to(state.mean.dtype).mT / _steps(state)


def _normalised(q: Tensor, state: PrefixMean, normaliser: str, *, causal: bool) -> Tensor:
    """``q`` over the denominators: its product with the mean of ``k_j v_j^T`` is the output."""
    q, total = q.to(state.mean.dtype), state.mean[..., -1:]
    if normaliser == "each feature":
        return q / denominator(total, _steps(state), normaliser, causal=causal).mT
    return q / denominator(q @ total, _steps(state), normaliser, causal=causal)


def _steps(state: PrefixMean) -> Tensor:
    """The number of steps, at least 1: ``(B, 1, 1, 1)``."""
    return state.steps.clamp(min=1).view(-1, 1, 1, 1)

"""Causal training form: prefix attention in blocks of time."""

from torch import Tensor

from ..chunks import default_block_length
from ..dropout import drop_steps
from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from ..prefix_attention import prefix_attention, step_counts
from .shared import denominator, with_ones


def kernel_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normaliser: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Causal attention by products of features, linear in T; specified by :func:`.naive.kernel_causal_attention`.

    Args:
        q, k: ``(B, H, T, R)`` features.
        v: ``(B, H, T, E)``.
        normaliser, padding, dropout_p: as in :func:`.naive.kernel_causal_attention`.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``.

    Raises:
        ValueError: if the normaliser is unknown.
    """
    dtype = accumulation_dtype(q)
    q, k = q.to(dtype), k.to(dtype)
    padding = Padding.of(padding)
    counts = step_counts(padding, q.shape[2], dtype, q.device)
    if normaliser == "each feature":
        one = k.new_ones(*k.shape[:-1], 1)
        # torch.compile refuses the same tensor twice.
        means = prefix_attention(one, one.view_as(one), k, padding=padding)
        values = drop_steps(v, dropout_p).to(dtype)
        q = q / denominator(means, counts, normaliser, causal=True)
        out = prefix_attention(q, k, values, padding=padding)
    else:
        values = with_ones(v, dtype, dropout_p)
        # As long as a value is wide, so that the states take as much memory as the features: with more features than
        # channels this was faster than the balance that prefix attention chooses.
        length = default_block_length(q.shape[2], v.shape[-1], v.shape[-1])
        sums = prefix_attention(q, k, values, padding=padding, block_length=length)
        out = sums[..., :-1] / denominator(sums[..., -1:], counts, normaliser, causal=True)
    return out.to(v.dtype)

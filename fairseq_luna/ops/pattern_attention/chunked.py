"""Training form: the pattern decides which products are computed; time and memory are what it claims."""

from torch import Tensor

from ..real_steps import in_place, lengths_of, read_steps, real_first, zeros_at_padding
from .blocks import block_sparse_attention
from .fused import topk_attention
from .shared import Pattern, RandomBlocks, Strided, TopK, Window
from .strides import strided_attention
from .windows import window_attention


def pattern_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention of each step to those of its pattern; specified by :func:`.naive.pattern_attention`.

    Args:
        q, k, v: ``(B, H, T, D)``.
        pattern: of positions among the real steps.
        padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: without the later steps; not for :class:`.RandomBlocks`.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding.
    """
    if isinstance(pattern, TopK):
        y, _ = topk_attention(
            q, k, v, count=pattern.count, padding_mask=padding_mask, causal=causal, dropout_p=dropout_p
        )
        return zeros_at_padding(y, padding_mask)
    lengths = None
    if padding_mask is not None:
        lengths = lengths_of(padding_mask)
        steps = real_first(padding_mask)
        q, k, v = (read_steps(x, steps) for x in (q, k, v))
    if isinstance(pattern, RandomBlocks):
        assert not causal, "a block sees later ones"
        y = block_sparse_attention(q, k, v, pattern, lengths=lengths, dropout_p=dropout_p)
    elif isinstance(pattern, Strided):
        y = strided_attention(q, k, v, pattern, lengths=lengths, causal=causal, dropout_p=dropout_p)
    else:
        assert isinstance(pattern, Window)
        y = window_attention(q, k, v, pattern, lengths=lengths, causal=causal, dropout_p=dropout_p)
    return in_place(y, padding_mask)

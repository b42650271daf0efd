"""Training form: the pattern decides which products are computed; time and memory are what it claims."""

from torch import Tensor

from ..padding import Padding, PaddingLike, read_steps
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
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention of each step to those of its pattern; specified by :func:`.naive.pattern_attention`.

    Args:
        q, k, v: ``(B, H, T, D)``.
        pattern: of positions among the real steps.
        padding: of the steps, anywhere: neither seen nor counted.
        causal: without the later steps; not for :class:`.RandomBlocks`.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding.
    """
    padding = Padding.of(padding)
    if isinstance(pattern, TopK):
        y, _ = topk_attention(q, k, v, count=pattern.count, padding=padding, causal=causal, dropout_p=dropout_p)
        return padding.zero(y)
    if padding.mask is not None:
        q, k, v = (read_steps(x, padding.real_first) for x in (q, k, v))
    if isinstance(pattern, RandomBlocks):
        assert not causal, "a block sees later ones"
        lengths = None if padding.mask is None else padding.lengths
        y = block_sparse_attention(q, k, v, pattern, lengths=lengths, dropout_p=dropout_p)
    elif isinstance(pattern, Strided):
        y = strided_attention(q, k, v, pattern, padding=padding, causal=causal, dropout_p=dropout_p)
    else:
        assert isinstance(pattern, Window)
        y = window_attention(q, k, v, pattern, padding=padding, causal=causal, dropout_p=dropout_p)
    return padding.restore_places(y)

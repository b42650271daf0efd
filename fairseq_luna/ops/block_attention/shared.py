"""The second level, and its learned maps as arguments."""

from collections.abc import Callable

from torch import Tensor

from ..block_partition import Blocks
from ..softmax_attention import scaled_dot_product_attention, softmax_attention

# Summaries (B, H, any number, D) to their queries, keys and values, each summary separately.
Projection = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
# The second level's result (B, H, any number, D) to what its readers need of it, of the same shape.
Finish = Callable[[Tensor], Tensor]


def attention_among(summaries: Tensor, project: Projection, blocks: Blocks, causal: bool, dropout_p: float) -> Tensor:
    """Attention ``(B, H, M, D)`` of the ``summaries (B, H, M, D)`` to all blocks, or to themselves and earlier ones."""
    q, k, v = project(summaries)
    if causal:
        return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
    return softmax_attention(q, k, v, padding=blocks.empty_blocks, dropout_p=dropout_p)[0]

"""Attention inside blocks, for the layers of the block pyramid."""

from torch import Tensor, nn

from ..ops.block_attention import attention_within
from ..ops.block_partition import Blocks, from_blocks
from .dropout import Dropout, dropout_probability
from .heads import merge_heads, split_heads
from .projection import Projections, project_together


class WithinBlockAttention(nn.Module):
    """Multi-head attention of each token to the tokens of its own block.

    Args:
        embed_dim: channels.
        num_heads: attention heads.
        dropout: dropout probability of the attention weights.
    """

    def __init__(self, *, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=True, q_noise=0.0, qn_block_size=8)
        self.q_proj = new.input()
        self.k_proj = new.input()
        self.v_proj = new.input()
        self.out_proj = new.output()

    def forward(self, x: Tensor, *, blocks: Blocks) -> Tensor:
        """Attend within the ``blocks`` of ``x (T, B, C)``: ``(T, B, C)``; undefined, but finite, at padding."""
        dropout_p = dropout_probability(self.dropout_module)
        q, k, v = (
            split_heads(part, self.num_heads) for part in project_together(x, self.q_proj, self.k_proj, self.v_proj)
        )
        y = from_blocks(attention_within(q, k, v, blocks, dropout_p=dropout_p), blocks)
        return self.out_proj(merge_heads(y))

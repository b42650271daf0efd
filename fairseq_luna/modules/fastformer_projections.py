"""Options, parameters and learned maps of Fastformer's attention, bidirectional and causal."""

import torch
from torch import Tensor, nn

from ..ops.fastformer_attention import FastformerMaps
from .choices import check_choice
from .dropout import Dropout
from .heads import check_heads, merge_heads, split_heads
from .projection import Projections
from .short_convolution import convolution_of

COMBINE_CHOICES = ("product", "sum", "concat")
RESIDUAL_CHOICES = ("query", "global-query")
SHARE_CHOICES = ("none", "query-value", "query-key-value")


class FastformerProjections(nn.Module):
    """The parameters of Fastformer's attention (arXiv 2108.09084; ``docs/mathematics.md``).

    The scores have no bias, because a softmax over time cancels it.

    Args:
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        combine: of global query and key, and of global key and value: "product", elementwise; "sum"; or "concat", a
            learned map of the concatenated vectors, 2C to C, one for each pair.
        residual: added to the output: "query", that of the step, or "global-query".
        share: which of queries, keys and values are one projection: "none", "query-value" (as in the paper), or
            "query-key-value".
        kernel_size: kernel size of a convolution before the projections, odd; 0 = none, as in the paper.
        dropout: dropout probability of the attention weights.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if an option is unknown, ``num_heads`` does not divide ``embed_dim``, or ``kernel_size`` is even
            or negative.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        combine: str = "product",
        residual: str = "query",
        share: str = "query-value",
        kernel_size: int = 0,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        check_choice("combine", combine, COMBINE_CHOICES)
        check_choice("residual", residual, RESIDUAL_CHOICES)
        check_choice("share", share, SHARE_CHOICES)
        check_heads(num_heads, embed_dim)
        self.num_heads = num_heads
        self.combine = combine
        self.residual = residual
        self.share = share
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.q_proj = new.input()
        if share != "query-key-value":
            self.k_proj = new.input()
        if share == "none":
            self.v_proj = new.input()
        self.query_score = new.input(outputs=num_heads, bias=False)
        self.key_score = new.input(outputs=num_heads, bias=False)
        self.query_key_proj = new.input(inputs=2) if combine == "concat" else None
        self.key_value_proj = new.input(inputs=2) if combine == "concat" else None
        self.out_proj = new.output()
        self.convolution = convolution_of(kernel_size, embed_dim=embed_dim)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projections of ``x (T, B, C)``, each ``(B, H, T, D)``; shared ones are the same tensor."""
        q = split_heads(self.q_proj(x), self.num_heads)
        k = q if self.share == "query-key-value" else split_heads(self.k_proj(x), self.num_heads)
        v = split_heads(self.v_proj(x), self.num_heads) if self.share == "none" else q
        return q, k, v

    def maps(self) -> FastformerMaps:
        """The learned maps as functions, for the ops."""
        return FastformerMaps(
            query_score=lambda q: self.scores(self.query_score, q),
            key_score=lambda p: self.scores(self.key_score, p),
            combine_key=lambda global_query, k: self.combined(self.query_key_proj, global_query, k),
            combine_value=lambda global_key, v: self.combined(self.key_value_proj, global_key, v),
        )

    def scores(self, score: nn.Module, x: Tensor) -> Tensor:
        """One score per head from all channels of each step: ``(B, H, T, D)`` to ``(B, H, T)``."""
        return score(merge_heads(x)).permute(1, 2, 0)

    def combined(self, concat_proj: nn.Module | None, pooled: Tensor, x: Tensor) -> Tensor:
        """``pooled (B, H, T or 1, D)`` and ``x (B, H, T, D)`` combined: ``(B, H, T, D)``."""
        if concat_proj is not None:
            both = torch.cat([merge_heads(pooled.expand_as(x)), merge_heads(x)], dim=-1)
            return split_heads(concat_proj(both), self.num_heads)
        # In the layout of x, in which the projections are plain products.
        return x * pooled if self.combine == "product" else x + pooled

    def output(self, u: Tensor, q: Tensor, global_query: Tensor) -> Tensor:
        """``out_proj(u)`` plus the residual: ``(T, B, C)`` from ``(B, H, T, D)``."""
        added = q if self.residual == "query" else global_query
        return self.out_proj(merge_heads(u)) + merge_heads(added)

"""Parameters of kernel attention, for encoder, decoder and source."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from ..usage_error import UsageError
from .dropout import dropout_probability
from .feature_maps import FeatureMapModule
from .heads import merge_heads, split_heads
from .projection import Projections


class KernelProjections(nn.Module):
    """The parameters of kernel attention: the weight of a step is a product of features, not a softmax.

    Args:
        feature_map: a class of :mod:`.feature_maps`; it decides which attention this is.
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        source_dim: channels of keys and values; None = C.
        dropout: probability that a head leaves out a step, for all queries.
        bias: projections have a bias, but for keys only if it has an effect.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.
        feature_options: further arguments of ``feature_map``.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or ``feature_map`` refuses an option.
    """

    def __init__(
        self,
        *,
        feature_map: Callable[..., FeatureMapModule],
        embed_dim: int,
        num_heads: int,
        source_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        **feature_options: Any,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise UsageError(f"--*-attention-heads {num_heads}: must be 1 or more and divide --*-embed-dim {embed_dim}")
        self.num_heads = num_heads
        self.feature_map = feature_map(num_heads=num_heads, head_size=embed_dim // num_heads, **feature_options)
        self.normaliser = self.feature_map.normaliser
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        of_source = replace(new, size=source_dim or embed_dim)
        self.q_proj = new.input()
        self.k_proj = of_source.input(outputs=embed_dim, bias=bias and self.feature_map.key_bias)
        self.v_proj = of_source.input(outputs=embed_dim)
        self.out_proj = new.output()

    def heads_of(self, projection: nn.Module, x: Tensor, *, beams: int = 1) -> Tensor:
        """A projection of ``x (T, B, C)``: ``(B / beams, H, T beams, D)``."""
        return split_heads(projection(x), self.num_heads, beams=beams)

    def features_and_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features of the queries and keys of ``x (T, B, C)``, each ``(B, H, T, R)``, and values ``(B, H, T, D)``."""
        features = self.feature_map()
        q, k, v = (self.heads_of(projection, x) for projection in (self.q_proj, self.k_proj, self.v_proj))
        return features.of_queries(q), features.of_keys(k), v

    def dropout_p(self) -> float:
        """The dropout probability that applies now."""
        return dropout_probability(self.dropout_module)

    def output(self, y: Tensor, *, beams: int = 1) -> Tensor:
        """``(B / beams, H, T beams, D)`` to ``(T, B, C)``."""
        return self.out_proj(merge_heads(y, beams=beams))

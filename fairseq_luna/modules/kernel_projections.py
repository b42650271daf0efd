"""Parameters of kernel attention, for encoder, decoder and source."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .attention_projections import AttentionProjections
from .feature_maps import FeatureMapModule
from .heads import check_heads


class KernelProjections(AttentionProjections):
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
        check_heads(num_heads, embed_dim)
        features = feature_map(num_heads=num_heads, head_size=embed_dim // num_heads, **feature_options)
        super().__init__(
            embed_dim=embed_dim,
            num_heads=num_heads,
            source_dim=source_dim,
            dropout=dropout,
            bias=bias,
            key_bias=features.key_bias,
            q_noise=q_noise,
            qn_block_size=qn_block_size,
        )
        self.feature_map = features
        self.normaliser = features.normaliser

    def features_and_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features of the queries and keys of ``x (T, B, C)``, each ``(B, H, T, R)``, and values ``(B, H, T, D)``."""
        features = self.feature_map()
        q, k, v = self.queries_keys_values(x)
        return features.of_queries(q), features.of_keys(k), v

"""Kernel attention, chosen by its feature map: linear, Performer, RFA, efficient and Hedgehog."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from ..ops import kernel_attention as op
from ..ops.padding import Padding
from ..ops.prefix_attention import PrefixMean
from ..published import Difference, Published
from .attention import CausalAttention, EncoderAttention, SourceAttention
from .checks import check_heads
from .declaration import Attention, Flag, Traits
from .feature_maps import (
    EluFeatures,
    FeatureMapModule,
    FourierFeatures,
    HedgehogFeatures,
    PositiveFeatures,
    SoftmaxFeatures,
)
from .multihead import QueriesKeysValues

# The numbers that feature maps have.
NUMBERS = ("num_features", "redraw_features")

CAUSAL_FORM = Difference(
    "in the decoder", "sums over the steps so far", "encoder only", "a decoder must not see later words"
)
DEVIATIONS = Difference(
    "deviations of the random directions",
    "learned",
    "learned in the paper; in the code an option, `--reparam-proj`",
    "as in the paper",
)


class KernelProjections(QueriesKeysValues):
    """The parameters of kernel attention: the weight of a step is a product of features, not a softmax.

    Args:
        feature_map: a class of :mod:`.feature_maps`; it decides which attention this is.
        options: further arguments of ``feature_map``, and those of :class:`.QueriesKeysValues`. Dropout is the
            probability that a head leaves out a step, for all queries; keys have a bias only if it has an effect.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or ``feature_map`` refuses an option.
    """

    def __init__(
        self, *, feature_map: Callable[..., FeatureMapModule], embed_dim: int, num_heads: int, **options: Any
    ) -> None:
        check_heads(num_heads, embed_dim)
        chosen = {name: options.pop(name) for name in NUMBERS if name in options}
        features = feature_map(num_heads=num_heads, head_size=embed_dim // num_heads, **chosen)
        super().__init__(embed_dim=embed_dim, num_heads=num_heads, key_bias=features.key_bias, **options)
        self.feature_map = features
        self.normaliser = features.normaliser

    def features_and_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features of the queries and keys of ``x (T, B, C)``, each ``(B, H, T, R)``, and values ``(B, H, T, D)``."""
        features = self.feature_map()
        q, k, v = self.queries_keys_values(x)
        return features.of_queries(q), features.of_keys(k), v

    def options(self, padding: Padding) -> dict[str, Any]:
        return super().options(padding) | {"normaliser": self.normaliser}


class KernelAttention(KernelProjections, EncoderAttention):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`KernelProjections`.

    If a sentence is all padding, the result is the bias of the output projection.
    """

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        return self.output(op.kernel_attention(*self.features_and_values(x), **self.options(padding)))


class KernelCausalAttention(KernelProjections, CausalAttention):
    """Causal self-attention for decoders, with a state of constant size. Arguments: :class:`KernelProjections`.

    The state has R (D + 1) numbers for each head, and a count.
    """

    State = PrefixMean

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        return self.output(op.kernel_causal_attention(*self.features_and_values(x), **self.options(padding)))

    def attend_step(self, x: Tensor, padding: Padding, state: PrefixMean | None) -> tuple[Tensor, PrefixMean]:
        y, state = op.kernel_causal_attention_step(*self.features_and_values(x), state, **self.options(padding))
        return self.output(y), state


class KernelSource(NamedTuple):
    """The cache of a source."""

    mean: Tensor  # (B, H, R, D + 1)
    steps: Tensor  # (B,)
    keys: Tensor | None  # (B, H, S, R), the features of the keys; None unless weights were asked for


class KernelSourceAttention(KernelProjections, SourceAttention):
    """Cross-attention. Arguments: :class:`KernelProjections`.

    The size of what generation caches of a sentence does not depend on its length: R (D + 1) numbers for each head, and
    a count. Only for the weights the features of all keys are cached too. With RFA's features weights may be negative,
    and they sum to -1 to 1 (``normaliser`` "bounded"); the others are positive and sum to 1.
    """

    Cached = KernelSource

    def read_source(self, source: Tensor, padding: Padding, *, need_weights: bool = False) -> KernelSource:
        k = self.feature_map().of_keys(self.heads_of(self.k_proj, source))
        v = self.heads_of(self.v_proj, source)
        mean = op.kernel_mean_of(k, v, padding=padding, dropout_p=self.dropout_p())
        return KernelSource(*mean, padding.zero(k) if need_weights else None)

    def attend_queries(
        self, q: Tensor, cached: KernelSource, padding: Padding, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        mean, features = PrefixMean(cached.mean, cached.steps), self.feature_map().of_queries(q)
        y = op.read_kernel_mean(features, mean, normaliser=self.normaliser).to(q.dtype)
        if not need_weights:
            return y, None
        assert cached.keys is not None, "the source was read without need_weights"
        return y, op.kernel_weights(features, cached.keys, mean, normaliser=self.normaliser).to(q.dtype)


ATTENTIONS = (
    Attention(
        name="linear",
        published=Published(
            "arXiv 2006.16236; the authors' fast-transformers",
            (
                Difference(
                    "denominator",
                    "exact",
                    "1e-6 is added",
                    "sums are kept as means, which do not vanish; 0 counts as 1",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2006.16236",
        encoder=partial(KernelAttention, feature_map=EluFeatures),
        decoder=partial(KernelCausalAttention, feature_map=EluFeatures),
        source=partial(KernelSourceAttention, feature_map=EluFeatures),
        traits=Traits(training_time="nD²"),
    ),
    Attention(
        name="performer",
        published=Published(
            "arXiv 2009.14794; performer-pytorch",
            (
                Difference(
                    "scale of the features",
                    "queries: the largest exponent of a step; keys: an exponent of at most 40",
                    "the largest exponent of queries of a step, and of keys of the batch; 1e-4 is added",
                    "later steps and other sentences would change the result",
                ),
                Difference(
                    "number of features",
                    "4 D",
                    "D log D in performer-pytorch, 256 in the paper",
                    "as in the survey; `--num-features` chooses it",
                ),
                Difference(
                    "random directions",
                    "drawn by a seed of the layer; signs make them uniform",
                    "QR decomposition without signs",
                    "without them products are biased; processes agree and resuming is exact",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2009.14794",
        encoder=partial(KernelAttention, feature_map=PositiveFeatures),
        decoder=partial(KernelCausalAttention, feature_map=PositiveFeatures),
        source=partial(KernelSourceAttention, feature_map=PositiveFeatures),
        traits=Traits(training_time="nmD"),
        flags=(
            Flag(
                name="num_features",
                argument="num_features",
                help="random features of a head",
                default=None,
                default_text="4 times its channels",
                minimum=1,
            ),
            Flag(
                name="redraw_features",
                argument="redraw_features",
                help="updates between two random draws in training; 0: never",
                default=1000,
                minimum=0,
            ),
        ),
    ),
    Attention(
        name="rfa",
        published=Published(
            "arXiv 2103.02143; the authors' RFA",
            (
                Difference(
                    "random matrices",
                    "500 of each layer, made of its seed; an update of training picks some",
                    "500 that all layers share; a call picks some",
                    "no file of matrices is needed, and resuming is exact",
                ),
                DEVIATIONS,
                Difference("gate", "none", "in some of the paper's models", "it is in gated-rfa"),
            ),
        ),
        paper="https://arxiv.org/abs/2103.02143",
        encoder=partial(KernelAttention, feature_map=FourierFeatures),
        decoder=partial(KernelCausalAttention, feature_map=FourierFeatures),
        source=partial(KernelSourceAttention, feature_map=FourierFeatures),
        unaligned="its weights may be negative",
        traits=Traits(training_time="nmD"),
        flags=(
            Flag(
                name="num_features",
                argument="num_features",
                help="random features of a head",
                default=64,
                minimum=1,
            ),
        ),
    ),
    Attention(
        name="efficient",
        published=Published(
            "arXiv 1812.01243; the authors' efficient-attention",
            (
                Difference(
                    "keys",
                    "between -30 and 30, without a bias",
                    "without bounds, with a bias",
                    "a causal sum of exponentials must not overflow; a bias would have no effect",
                ),
                Difference("residual connection", "of the layer", "in the module too", "fairseq's layer has it"),
                CAUSAL_FORM,
            ),
        ),
        paper="https://arxiv.org/abs/1812.01243",
        encoder=partial(KernelAttention, feature_map=SoftmaxFeatures),
        decoder=partial(KernelCausalAttention, feature_map=SoftmaxFeatures),
        source=partial(KernelSourceAttention, feature_map=SoftmaxFeatures),
        traits=Traits(training_time="nD²"),
    ),
    Attention(
        name="hedgehog",
        published=Published(
            "arXiv 2402.04347; flash-linear-attention",
            (
                Difference(
                    "training of the features",
                    "on the task alone",
                    "first on the weights of a trained softmax attention, then on the task",
                    "no teacher is needed; `fairseq-luna convert` starts from a trained transformer",
                ),
                Difference(
                    "features",
                    "softmax of mapped channels and of their opposites, of maps of each head",
                    "exponentials of them in the paper; in flash-linear-attention a softmax, of maps that all heads"
                    " share",
                    "a softmax does not overflow; the maps are as in the paper",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2402.04347",
        encoder=partial(KernelAttention, feature_map=HedgehogFeatures),
        decoder=partial(KernelCausalAttention, feature_map=HedgehogFeatures),
        source=partial(KernelSourceAttention, feature_map=HedgehogFeatures),
        traits=Traits(training_time="nD²"),
    ),
)

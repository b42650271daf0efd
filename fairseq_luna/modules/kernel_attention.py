"""Kernel attention: the weight of a step is a product of features, so that sums over time can be computed once.

For each head, with a feature map phi to R features (:mod:`.feature_maps`), which decides the attention::

    S = mean_j phi(k_j) [v_j ; 1]^T                 (R, D + 1), over all steps j; over j <= t if causal
    y_t = values of phi(q_t)^T S / sum of weights, the last channel of phi(q_t)^T S

======================  ==========================================================================================
name                    phi
======================  ==========================================================================================
linear                  elu + 1 (arXiv 2006.16236)
performer               positive random features of the softmax kernel (FAVOR+, arXiv 2009.14794)
rfa                     random Fourier features of the Gaussian kernel (arXiv 2103.02143)
efficient               softmax of a query over its channels, and of a key channel over time (arXiv 1812.01243)
hedgehog                softmax over learned channels and their opposites (arXiv 2402.04347)
======================  ==========================================================================================

Parameters: ``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``, and the parameters of ``feature_map``. Differences from
    the papers are in the declarations at the end of the file.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from ..ops import kernel_attention as op
from ..ops.padding import Padding
from ..ops.prefix_attention import PrefixMean
from ..published import Difference, Published
from .argument_checks import check_heads
from .attention import CrossAttention, SelfAttention
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

# Arguments of feature maps.
FEATURE_ARGUMENTS = ("num_features", "redraw_features")


class KernelProjections(QueriesKeysValues):
    """The parameters of kernel attention.

    Args:
        feature_map: a class of :mod:`.feature_maps`; it decides which attention this is.
        options: arguments of ``feature_map`` and of :class:`.QueriesKeysValues`. Dropout is the probability that a head
            leaves out a step, for all queries; keys have a bias only if it has an effect.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or ``feature_map`` refuses an option.
    """

    def __init__(
        self, *, feature_map: Callable[..., FeatureMapModule], embed_dim: int, num_heads: int, **options: Any
    ) -> None:
        check_heads(num_heads, embed_dim)
        chosen = {name: options.pop(name) for name in FEATURE_ARGUMENTS if name in options}
        features = feature_map(num_heads=num_heads, head_size=embed_dim // num_heads, **chosen)
        super().__init__(embed_dim=embed_dim, num_heads=num_heads, key_bias=features.key_bias, **options)
        self.feature_map = features
        self.normalizer = features.normalizer

    def features_and_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features of the queries and keys of ``x (T, B, C)``, each ``(B, H, T, R)``, and values ``(B, H, T, D)``."""
        features = self.feature_map()
        q, k, v = self.queries_keys_values(x)
        return features.map_queries(q), features.map_keys(k), v

    def op_options(self, padding: Padding) -> dict[str, Any]:
        return {**super().op_options(padding), "normalizer": self.normalizer}


class KernelAttention(KernelProjections, SelfAttention):
    """Self-attention by features, linear in the length. Arguments: :class:`KernelProjections`, and ``causal``.

    The state of a decoder has R (D + 1) numbers for each head, and a count. If a sentence is all padding, the result is
    the bias of the output projection.
    """

    State = PrefixMean

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        attention = op.kernel_causal_attention if self.causal else op.kernel_attention
        return self.project_output(attention(*self.features_and_values(x), **self.op_options(padding)))

    def attend_step(self, x: Tensor, padding: Padding, state: PrefixMean | None) -> tuple[Tensor, PrefixMean]:
        y, state = op.kernel_causal_attention_step(*self.features_and_values(x), state, **self.op_options(padding))
        return self.project_output(y), state


class KernelSource(NamedTuple):
    """The cache of a source."""

    mean: Tensor  # (B, H, R, D + 1)
    steps: Tensor  # (B,)
    keys: Tensor | None  # (B, H, S, R), the features of the keys; None unless weights were asked for


class KernelCrossAttention(KernelProjections, CrossAttention):
    """Cross-attention. Arguments: :class:`KernelProjections`.

    The size of the cache of a sentence does not depend on its length: R (D + 1) numbers for each head, and a count.
    Only for the weights the features of all keys are cached too. With RFA's features weights may be negative, and they
    sum to -1 to 1 (``normalizer`` "bounded"); the others are positive and sum to 1.
    """

    Cached = KernelSource

    def read_source(self, source: Tensor, padding: Padding, *, need_weights: bool = False) -> KernelSource:
        k = self.feature_map().map_keys(self.project_heads(self.k_proj, source))
        v = self.project_heads(self.v_proj, source)
        mean = op.kernel_mean_of(k, v, padding=padding, dropout_p=self.dropout_p())
        return KernelSource(*mean, padding.zero(k) if need_weights else None)

    def attend_queries(
        self, q: Tensor, cached: KernelSource, padding: Padding, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        mean, features = PrefixMean(cached.mean, cached.steps), self.feature_map().map_queries(q)
        y = op.read_kernel_mean(features, mean, normalizer=self.normalizer).to(q.dtype)
        if not need_weights:
            return y, None
        assert cached.keys is not None, "the source was read without need_weights"
        return y, op.kernel_weights(features, cached.keys, mean, normalizer=self.normalizer).to(q.dtype)


CAUSAL_FORM = Difference(
    "in the decoder", "sums over the steps so far", "encoder only", "a decoder must not see later tokens"
)
LEARNED_DEVIATIONS = Difference(
    "deviations of the random directions",
    "learned",
    "learned in the paper; in the code an option, `--reparam-proj`",
    "as in the paper",
)


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
        decoder=partial(KernelAttention, feature_map=EluFeatures, causal=True),
        source=partial(KernelCrossAttention, feature_map=EluFeatures),
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
        decoder=partial(KernelAttention, feature_map=PositiveFeatures, causal=True),
        source=partial(KernelCrossAttention, feature_map=PositiveFeatures),
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
                LEARNED_DEVIATIONS,
                Difference("gate", "none", "in some of the paper's models", "it is in gated-rfa"),
            ),
        ),
        paper="https://arxiv.org/abs/2103.02143",
        encoder=partial(KernelAttention, feature_map=FourierFeatures),
        decoder=partial(KernelAttention, feature_map=FourierFeatures, causal=True),
        source=partial(KernelCrossAttention, feature_map=FourierFeatures),
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
        decoder=partial(KernelAttention, feature_map=SoftmaxFeatures, causal=True),
        source=partial(KernelCrossAttention, feature_map=SoftmaxFeatures),
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
        decoder=partial(KernelAttention, feature_map=HedgehogFeatures, causal=True),
        source=partial(KernelCrossAttention, feature_map=HedgehogFeatures),
        traits=Traits(training_time="nD²"),
    ),
)

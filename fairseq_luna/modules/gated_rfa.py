"""Gated random feature attention, whose heads learn at each step how much they forget."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.decay_attention import DecayState, decay_attention, decay_attention_step
from ..ops.dtypes import accumulation_dtype
from ..ops.kernel_attention import with_ones
from ..ops.padding import Padding
from ..published import Difference, Published
from .attention import CausalAttention, EncoderAttention
from .declaration import Attention, Flag, Traits
from .feature_maps import FourierFeatures
from .kernel_attention import DEVIATIONS, KernelProjections

KEPT_AT_FIRST = 2.2  # the bias of the gate: its sigmoid is 0.9
# The sum of the weights by which a smaller one divides, as published with 64 features; without a gate it is 1.
LEAST_SUM, OF_FEATURES = 0.1, 64


class ForgetGate(nn.Linear):
    """The linear map of the gates, which are 0.9 at first, because a head that forgets fast hardly learns to keep."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.normal_(self.weight, std=0.02)
        nn.init.constant_(self.bias, KEPT_AT_FIRST)


class GatedRfaProjections(KernelProjections):
    """The parameters of gated RFA (arXiv 2103.02143, section 3.2): features, and a gate for each head.

    A sum of the weights below ``least_sum`` counts as that. The authors' code has 0.1 for any number of features. A
    weight is at most R/100, and the weights of a step sum to about R/270 where keys are unlike the query: with 16
    features nearly all sums would be below. Here it is 0.1 R/64, except in a module that has loaded a state made before
    this was so, without ``bound_by_features``.

    Args:
        options: those of :class:`.KernelProjections` with :class:`.FourierFeatures`. The gate has a bias in any case.

    Raises:
        UsageError: as there.
    """

    bound_by_features: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(feature_map=FourierFeatures, **options)
        self.gate_proj = self.new.noisy(ForgetGate(self.new.size, self.num_heads))
        self.register_buffer("bound_by_features", torch.tensor(1))
        self.least_sum = self.bounded(by_features=True)

    def bounded(self, *, by_features: bool) -> float:
        """The least sum of the weights."""
        assert isinstance(self.feature_map, FourierFeatures)
        return LEAST_SUM * self.feature_map.num_features / OF_FEATURES if by_features else LEAST_SUM

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *options: Any) -> None:
        stored = state_dict.setdefault(f"{prefix}bound_by_features", torch.tensor(0))
        if not stored.is_meta:
            self.least_sum = self.bounded(by_features=bool(stored))
        super()._load_from_state_dict(state_dict, prefix, *options)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of the op for ``x (T, B, C)``.

        They are features of the queries and of the keys, the latter times 1 - g, each ``(B, H, T, R)``, values and a
        column of ones ``(B, H, T, D + 1)``, and the logarithm of the gate g, ``(B, H, T)``.
        """
        q, k, v = self.features_and_values(x)
        dtype = accumulation_dtype(v)
        gate = self.gate_proj(x).to(dtype).permute(1, 2, 0)
        return q, k * (-gate).sigmoid()[..., None], with_ones(v, dtype, self.dropout_p()), F.logsigmoid(gate)

    def normalised(self, y: Tensor, x: Tensor) -> Tensor:
        """The output for ``x (T, B, C)``, of sums of values and of weights, ``y (B, H, T, D + 1)``: ``(T, B, C)``."""
        return self.output((y[..., :-1] / y[..., -1:].clamp(min=self.least_sum)).to(x.dtype))

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        return self.normalised(decay_attention(*self.parts(x), padding=padding, causal=self.causal), x)


class GatedRfaAttention(GatedRfaProjections, EncoderAttention):
    """Bidirectional self-attention for encoders: gates between two steps multiply their weight.

    Arguments: :class:`GatedRfaProjections`.
    """


class GatedRfaCausalAttention(GatedRfaProjections, CausalAttention):
    """Causal self-attention for decoders. Arguments: :class:`GatedRfaProjections`.

    The state has R (D + 1) numbers for each head.
    """

    State = DecayState

    def attend_step(self, x: Tensor, padding: Padding, state: DecayState | None) -> tuple[Tensor, DecayState]:
        y, state = decay_attention_step(*self.parts(x), state, padding=padding)
        return self.normalised(y, x), state


ATTENTIONS = (
    Attention(
        name="gated-rfa",
        published=Published(
            "arXiv 2103.02143, section 3.2; the authors' rfa-doc-mt, which has a gate for each sentence",
            (
                Difference(
                    "least sum of weights",
                    "0.1 with 64 features, in proportion to their number",
                    "0.1 with any number",
                    "a sum is in proportion to the features: with 16, nearly all were below 0.1. Checkpoints from"
                    " before this was so keep 0.1",
                ),
                Difference(
                    "gates at the start",
                    "about 0.9",
                    "about 0.5; `--decay-gate-bias` chooses it",
                    "a head that forgets fast hardly learns to keep",
                ),
                DEVIATIONS,
                Difference(
                    "random matrices",
                    "500 of each layer, made of its seed",
                    "500 that all layers share",
                    "no file of matrices is needed, and resuming is exact",
                ),
                Difference(
                    "in the encoder",
                    "the product of the gates between two steps, whichever is first",
                    "decoder only",
                    "an encoder's words should see both sides",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2103.02143",
        encoder=GatedRfaAttention,
        decoder=GatedRfaCausalAttention,
        source="without its gate it is rfa",
        traits=Traits(training_time="nmD"),
        flags=(
            Flag(
                name="num_features",
                argument="num_features",
                help="random features of a head; the least sum of the weights is in proportion to them, where the"
                " authors have 0.1 for any number",
                default=64,
                minimum=1,
            ),
        ),
    ),
)

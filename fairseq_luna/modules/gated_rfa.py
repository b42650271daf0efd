"""Gated random feature attention (arXiv 2103.02143, section 3.2), whose heads learn at each step how much to forget.

With the random Fourier features phi of RFA, and a gate g for each head and step::

    g_t = sigmoid(w . x_t + b)
    S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) [v_t ; 1]^T           state, (R, D + 1)
    y_t = values of phi(q_t)^T S_t  /  sum of weights, the last channel of phi(q_t)^T S_t

The encoder's form weighs step j by the product of the gates between t and j, whichever is first. Parameters:
``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``, ``feature_map.sigma`` and ``gate_proj`` (w, b). Differences from the
paper are in the declaration at the end of the file.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.decay_attention import DecayState, decay_attention, decay_attention_step
from ..ops.dtypes import accumulation_dtype
from ..ops.kernel_attention import with_ones
from ..ops.padding import Padding
from ..published import Difference, Published
from .attention import SelfAttention
from .declaration import Attention, Flag, Traits
from .feature_maps import FourierFeatures
from .kernel_attention import LEARNED_DEVIATIONS, KernelProjections

GATE_BIAS = 2.2  # its sigmoid is 0.9
# The sum of the weights below which a smaller one counts as this, as published with 64 features.
LEAST_SUM, PUBLISHED_FEATURES = 0.1, 64


class ForgetGate(nn.Linear):
    """The linear map of the gates, which are 0.9 at first, because a head that forgets fast hardly learns to keep."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.normal_(self.weight, std=0.02)
        nn.init.constant_(self.bias, GATE_BIAS)


class GatedRfaAttention(KernelProjections, SelfAttention):
    """Gated random feature attention; the state of a decoder has R (D + 1) numbers for each head.

    A sum of the weights below ``least_sum`` counts as ``least_sum``. The authors' code has 0.1 for any number of
    features. A weight is at most R/100, and the weights of a step sum to about R/270 where keys are unlike the query:
    with 16 features nearly all sums would be below. Here it is 0.1 R/64, except in a module that has loaded an older
    state, without ``bound_by_features``.

    Args:
        options: arguments of :class:`.KernelProjections`, whose feature map is :class:`.FourierFeatures`, and of
            :class:`.SelfAttention`. The gate has a bias in any case.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or the number of features is too small.
    """

    State = DecayState
    bound_by_features: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(feature_map=FourierFeatures, **options)
        self.gate_proj = self.linear.with_quant_noise(ForgetGate(self.embed_dim, self.num_heads))
        self.register_buffer("bound_by_features", torch.tensor(1))
        self.least_sum = self.least_sum_of_weights(by_features=True)

    def least_sum_of_weights(self, *, by_features: bool) -> float:
        """0.1, ``by_features`` in proportion to the number of features."""
        assert isinstance(self.feature_map, FourierFeatures)
        return LEAST_SUM * self.feature_map.num_features / PUBLISHED_FEATURES if by_features else LEAST_SUM

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *options: Any) -> None:
        stored = state_dict.setdefault(f"{prefix}bound_by_features", torch.tensor(0))
        if not stored.is_meta:
            self.least_sum = self.least_sum_of_weights(by_features=bool(stored))
        super()._load_from_state_dict(state_dict, prefix, *options)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        y = decay_attention(*self.features_values_and_decay(x), padding=padding, causal=self.causal)
        return self.normalize_and_project(y, x)

    def attend_step(self, x: Tensor, padding: Padding, state: DecayState | None) -> tuple[Tensor, DecayState]:
        y, state = decay_attention_step(*self.features_values_and_decay(x), state, padding=padding)
        return self.normalize_and_project(y, x), state

    def features_values_and_decay(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of the op for ``x (T, B, C)``.

        They are features of the queries and of the keys, the latter times 1 - g, each ``(B, H, T, R)``, values and a
        column of ones ``(B, H, T, D + 1)``, and the logarithm of the gate g, ``(B, H, T)``.
        """
        q, k, v = self.features_and_values(x)
        dtype = accumulation_dtype(v)
        gate = self.gate_proj(x).to(dtype).permute(1, 2, 0)
        return q, k * (-gate).sigmoid()[..., None], with_ones(v, dtype, self.dropout_p()), F.logsigmoid(gate)

    def normalize_and_project(self, y: Tensor, x: Tensor) -> Tensor:
        """The output for ``x (T, B, C)``, from sums of values and of weights, ``y (B, H, T, D + 1)``: ``(T, B, C)``."""
        return self.project_output((y[..., :-1] / y[..., -1:].clamp(min=self.least_sum)).to(x.dtype))


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
                    "a sum is in proportion to the features: with 16, nearly all were below 0.1. Older"
                    " checkpoints keep 0.1",
                ),
                Difference(
                    "gates at the start",
                    "about 0.9",
                    "about 0.5; `--decay-gate-bias` chooses it",
                    "a head that forgets fast hardly learns to keep",
                ),
                LEARNED_DEVIATIONS,
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
                    "an encoder's tokens should see both sides",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2103.02143",
        encoder=GatedRfaAttention,
        decoder=partial(GatedRfaAttention, causal=True),
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

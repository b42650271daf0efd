"""Gated random feature attention, whose heads learn at each step how much they forget."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.decay_attention import DecayState, decay_attention, decay_attention_step
from ..ops.dtypes import accumulation_dtype
from ..ops.kernel_attention.shared import with_ones
from ..ops.padding import Padding
from .attention import CausalAttention, EncoderAttention
from .feature_maps import FourierFeatures
from .kernel_attention import KernelProjections

KEPT_AT_FIRST = 2.2  # the bias of the gate: its sigmoid is 0.9
LEAST_SUM = 0.1  # of the weights, by which a smaller one divides: without a gate it is 1


class GatedRfaProjections(KernelProjections):
    """The parameters of gated RFA (arXiv 2103.02143, section 3.2): features, and a gate for each head.

    Args:
        options: those of :class:`.KernelProjections` with :class:`.FourierFeatures`. The gate has a bias in any case.

    Raises:
        UsageError: as there.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(feature_map=FourierFeatures, **options)
        gate = nn.Linear(self.new.size, self.num_heads)
        nn.init.normal_(gate.weight, std=0.02)
        nn.init.constant_(gate.bias, KEPT_AT_FIRST)
        self.gate_proj = self.new.noisy(gate)

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
        return self.output((y[..., :-1] / y[..., -1:].clamp(min=LEAST_SUM)).to(x.dtype))

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

"""Multi-scale retention (RetNet, arXiv 2307.08621): linear attention with rotary positions and a fixed decay per head.

For head h with decay gamma_h = 1 - 2^(-5 - h), and R_t the rotation by the position t::

    S_t = gamma_h S_{t-1} + (R_t k_t / sqrt(D)) v_t^T            state, (D, D)
    y_t = (R_t q_t)^T S_t
    out = W_o (silu(W_g x_t) * rms_norm(y_t))                    gate, and the norm of each head

The encoder's form weighs step j by gamma_h^|t - j|, on both sides. Parameters: ``q_proj``, ``k_proj``, ``v_proj``,
``out_proj`` (W_o) and ``gate_proj`` (W_g). Differences from the paper are in the declaration at the end of the file.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ops.decay_attention import DecayState, decay_attention, decay_attention_step
from ..ops.dropout import drop_steps
from ..ops.dtypes import accumulation_dtype
from ..ops.padding import Padding, computed_once
from ..published import Difference, Published
from ..usage_error import ArgumentError
from .attention import SelfAttention
from .conversion import Rule, Rules, open_gate
from .declaration import Attention, Traits
from .multihead import QueriesKeysValues, merge_heads

EPSILON = 1e-6  # added to the mean square by which the norm of a head divides


class RetentionState(NamedTuple):
    """The state of a decoder, of the real steps so far."""

    sum: Tensor  # (B, H, D, D) decayed sum of k v^T, fp32 if the inputs are half precision
    steps: Tensor  # (B,) int64, number of steps, which is the position of the next


class RetentionAttention(QueriesKeysValues, SelfAttention):
    """Multi-scale retention (arXiv 2307.08621, section 2), with values of C channels, not 2 C.

    Args:
        options: arguments of :class:`.QueriesKeysValues` and :class:`.SelfAttention`. Dropout is the probability that a
            head leaves out a step, for all queries.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or a head has an odd number of channels.
    """

    State = RetentionState
    conversion_rules: ClassVar[Rules] = {"gate_proj": Rule(start=open_gate)}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.head_size % 2:
            pairs = f"must be a multiple of {2 * self.num_heads}: a head turns pairs of channels"
            raise ArgumentError("embed_dim", self.embed_dim, pairs)
        self.gate_proj = self.linear.input_projection()

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        rotation = rotations_of(padding, x.shape[0], self.head_size, accumulation_dtype(x), x.device)
        y = decay_attention(*self.project_qkv_and_decay(x, rotation), padding=padding, causal=self.causal)
        return self.gate_and_project(y, x)

    def attend_step(self, x: Tensor, padding: Padding, state: RetentionState | None) -> tuple[Tensor, RetentionState]:
        position = x.new_zeros(x.shape[1], dtype=torch.int64) if state is None else state.steps
        before = None if state is None else DecayState(state.sum)
        inputs = self.project_qkv_and_decay(x, rotations(position[:, None], self.head_size, accumulation_dtype(x)))
        y, after = decay_attention_step(*inputs, before, padding=padding)
        following = position + (1 if padding.mask is None else ~padding.mask[:, 0])
        return self.gate_and_project(y, x), RetentionState(after.sum, following)

    def project_qkv_and_decay(
        self, x: Tensor, rotation: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of the op: q, k and v of ``x (T, B, C)``, each ``(B, H, T, D)``, and log gamma ``(1, H, 1)``.

        ``rotation`` is the result of :func:`rotations` for the positions of the steps.
        """
        q, k, v = self.queries_keys_values(x)
        dtype = accumulation_dtype(v)
        q, k = (apply_rotation(y.to(dtype), *rotation) for y in (q, k))
        # A head forgets less than the one before: the first keeps 1 - 1/32 of its sum at a step.
        forgotten = torch.arange(5, 5 + self.num_heads, device=x.device, dtype=dtype).neg().exp2()
        log_decay = forgotten.neg().log1p()[None, :, None]
        return q, k * self.head_size**-0.5, drop_steps(v, self.dropout_p()), log_decay

    def gate_and_project(self, y: Tensor, x: Tensor) -> Tensor:
        """Normalize the heads' outputs ``(B, H, T, D)``, gate them with ``x (T, B, C)`` and project: ``(T, B, C)``."""
        normed = y * (y.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
        gate = F.silu(self.gate_proj(x))
        return self.out_proj(gate * merge_heads(normed).to(gate.dtype))


def rotations(positions: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles at ``positions (B, T)``: each ``(B, 1, T, size / 2)``.

    The angles are in fp64: in fp32 an angle at position 100,000 would be wrong by a hundredth.
    """
    speeds = torch.logspace(0, -4, size // 2, dtype=torch.float64, device=positions.device)
    angles = positions[:, None, :, None] * speeds
    return angles.cos().to(dtype), angles.sin().to(dtype)


@computed_once
def rotations_of(
    padding: Padding, steps: int, size: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """:func:`rotations` of whole sequences, whose real steps are counted from 0."""
    positions = torch.arange(steps, device=device)[None] if padding.mask is None else padding.positions
    return rotations(positions, size, dtype)


def apply_rotation(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of neighboring channels of ``x (B, H, T, D)`` by its angle."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


ATTENTIONS = (
    Attention(
        name="retention",
        published=Published(
            "arXiv 2307.08621; torchscale, and flash-linear-attention",
            (
                Difference(
                    "channels of values and gate",
                    "C",
                    "2 C",
                    "as wide as in the other attentions",
                ),
                Difference(
                    "channels of a head",
                    "C / heads, 64 in the base models",
                    "256",
                    "the model's number of heads, as for every name: each head has its rate of forgetting",
                ),
                Difference(
                    "biases",
                    "of queries, keys, values, gate and output",
                    "none",
                    "as fairseq's attention has; `bias=False` in Python leaves them out",
                ),
                Difference(
                    "projections at the start",
                    "Xavier uniform, divided by sqrt(2) but for the output",
                    "Xavier uniform, divided by 4 sqrt(2) but for the output",
                    "as the other attentions; the norm of a head cancels the scale of queries, keys and values",
                ),
                Difference(
                    "norm of a head's output",
                    "1e-6 is added to its mean square",
                    "the same, after a division by the sum of its weights",
                    "the norm cancels the division, but for the epsilon",
                ),
                Difference(
                    "position embeddings",
                    "fairseq's, added to the tokens, beside the rotation",
                    "the rotation alone",
                    "one setting for all names; `--no-token-positional-embeddings` leaves them out",
                ),
                Difference(
                    "in the encoder",
                    "the decay of the distance, to both sides",
                    "decoder only",
                    "an encoder's tokens should see both sides",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2307.08621",
        encoder=RetentionAttention,
        decoder=partial(RetentionAttention, causal=True),
        source="there is no distance between a target token and a source token",
        traits=Traits(training_time="nD²", is_matrix=False),
    ),
)

"""The mixer of Mamba-2 (arXiv 2405.21060): a state space model, whose state decays at a rate that each step determines.

Queries, keys and values are the paper's C, B and x, of N, N and 2 C channels, after a short convolution with silu; all
heads have the same queries and keys::

    dt_t = softplus(x_t's dt + dt_bias)
    S_t  = exp(-exp(A_log) dt_t) S_{t-1} + dt_t k_t v_t^T            state of a head, (N, 2 C / H)
    y_t  = q_t^T S_t + D v_t
    out  = W_o rms_norm(y_t * silu(gate_t))

Parameters, by their published names: ``in_proj`` for gate, values, keys, queries and dt together; ``conv1d``,
``dt_bias``, ``A_log``, ``D``, ``norm``, ``out_proj`` (W_o). Differences from the paper are in the declaration at the
end of the file.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.decay_attention import DecayState, decay_attention, decay_attention_step
from ..ops.dropout import drop_steps
from ..ops.dtypes import accumulation_dtype
from ..ops.padding import Padding
from ..published import Difference, Published
from .argument_checks import check_positive
from .attention import SelfAttention
from .declaration import Attention, Flag, Traits
from .multihead import merge_heads, split_heads
from .short_convolution import SiluConvolution

STEP_SIZES = 0.001, 0.1  # bounds of dt at the start, as published
RATES = 1.0, 16.0  # bounds of exp(A_log) at the start


def decay_parameters(num_heads: int, least: float, largest: float) -> tuple[nn.Parameter, nn.Parameter]:
    """``dt_bias`` and ``A_log`` of the decays ``exp(-exp(A_log) softplus(... + dt_bias))`` of all heads.

    exp(A_log) is drawn between ``least``, which may be 0, and ``largest``.
    """
    dt = torch.empty(num_heads).uniform_(*map(math.log, STEP_SIZES)).exp()
    bias = dt + torch.log(-torch.expm1(-dt))  # its softplus is dt
    rates = torch.empty(num_heads).uniform_(least, largest).clamp(min=torch.finfo(torch.float32).tiny)
    return nn.Parameter(bias), nn.Parameter(rates.log())


class StateSpaceState(NamedTuple):
    """The state of a decoder."""

    sum: Tensor  # (B, H, N, 2 C / H), at least fp32
    inputs: Tensor  # (B, 3, 2 C + 2 N), the last inputs of the convolution


class StateSpaceAttention(SelfAttention):
    """The mixer of Mamba-2, linear in the length; the state of a decoder has 2 C (N + 3) + 6 N numbers.

    The published one is for decoders. In the encoder's form a step weighs another by the decay between them, whichever
    is first, and the convolution reads three steps on each side, as in Hydra (arXiv 2407.09941), instead of three
    before it.

    Args:
        state_size: N, the numbers of the state for each of 2 C channels; published with 64 and 128.
        options: arguments of :class:`.SelfAttention`; only the output projection has a bias. Dropout is the probability
            that a head leaves out a step, for all later ones.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or ``state_size`` is below 1.
    """

    State = StateSpaceState

    def __init__(self, *, state_size: int = 64, **options: Any) -> None:
        super().__init__(**options)
        check_positive(state_size=state_size)
        self.state_size, self.channels = state_size, 2 * self.embed_dim
        convolved = self.channels + 2 * state_size
        self.sizes = [self.channels, convolved, self.num_heads]
        self.in_proj = self.linear.input_projection(outputs=sum(self.sizes), bias=False)
        self.conv1d = SiluConvolution(embed_dim=convolved, kernel_size=4 if self.causal else 7)
        self.dt_bias, self.A_log = decay_parameters(self.num_heads, *RATES)
        self.D = nn.Parameter(torch.ones(self.num_heads))
        self.norm = nn.RMSNorm(self.channels, eps=1e-5)
        self.out_proj = self.linear.output_projection(inputs=2)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        gate, inputs, dt = self.project_inputs(x)
        if self.causal:
            convolved, _ = self.conv1d.causal(inputs, padding=padding)
        else:
            convolved = self.conv1d.centered(inputs, padding=padding)
        qkv_and_decay, skipped = self.op_arguments(convolved, dt)
        y = decay_attention(*qkv_and_decay, padding=padding, causal=self.causal)
        return self.gate_and_project(y + skipped, gate)

    def attend_step(self, x: Tensor, padding: Padding, state: StateSpaceState | None) -> tuple[Tensor, StateSpaceState]:
        gate, inputs, dt = self.project_inputs(x)
        past = None if state is None else state.inputs
        convolved, last_inputs = self.conv1d.causal(inputs, padding=padding, past=past)
        qkv_and_decay, skipped = self.op_arguments(convolved, dt)
        before = None if state is None else DecayState(state.sum)
        y, after = decay_attention_step(*qkv_and_decay, before, padding=padding)
        return self.gate_and_project(y + skipped, gate), StateSpaceState(after.sum, last_inputs)

    def project_inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """The gate ``(T, B, 2 C)``, the convolution's inputs ``(T, B, 2 C + 2 N)`` and dt ``(T, B, H)``."""
        return self.in_proj(x).split(self.sizes, dim=-1)

    def op_arguments(self, convolved: Tensor, dt: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """q, k ``(B, H, T, N)``, dt v ``(B, H, T, 2 C / H)`` and the logarithm of the decay; and D v.

        Args:
            convolved, dt: the last two results of :meth:`project_inputs`, the first after the convolution.
        """
        v, k, q = convolved.split([self.channels, self.state_size, self.state_size], dim=-1)
        v = split_heads(v, self.num_heads)
        q, k = (y.transpose(0, 1)[:, None].expand(-1, self.num_heads, -1, -1) for y in (q, k))
        full = accumulation_dtype(dt)
        dt = F.softplus(dt.to(full) + self.dt_bias.to(full)).permute(1, 2, 0)
        written = drop_steps((v * dt[..., None]).to(v.dtype), self.dropout_p())
        return (q, k, written, -dt * self.A_log.to(full).exp()[:, None]), v * self.D[:, None, None]

    def gate_and_project(self, y: Tensor, gate: Tensor) -> Tensor:
        """The output ``(T, B, C)`` for ``y (B, H, T, 2 C / H)`` and ``gate (T, B, 2 C)``; the norm is in fp32."""
        full = accumulation_dtype(gate)
        y = merge_heads(y).to(full) * F.silu(gate.to(full))
        y = F.rms_norm(y, (self.channels,), self.norm.weight.to(full), self.norm.eps)
        return self.out_proj(y.to(gate.dtype))


ATTENTIONS = (
    Attention(
        name="ssd",
        published=Published(
            "arXiv 2405.21060; the authors' mamba, and Mamba2Mixer in transformers",
            (
                Difference(
                    "rows of the state",
                    "64",
                    "128 in the code, 64 and 128 in the paper",
                    "sentences are short; `--state-size` chooses them",
                ),
                Difference(
                    "channels of a head",
                    "2 C / heads, 128 in the base models",
                    "64",
                    "the model's number of heads, as for every name",
                ),
                Difference(
                    "bias of the output projection",
                    "yes",
                    "none",
                    "as fairseq's attention has; `bias=False` in Python leaves it out",
                ),
                Difference(
                    "projections at the start",
                    "Xavier uniform",
                    "torch's default, and the output's divided by the root of the number of layers",
                    "as the other attentions, in layers with a feed-forward network",
                ),
                Difference(
                    "in the encoder",
                    "the decay between two steps, whichever is first; the convolution sees three steps on each side",
                    "decoder only",
                    "an encoder's tokens should see both sides, as in Hydra (arXiv 2407.09941)",
                ),
                Difference(
                    "position embeddings",
                    "fairseq's, added to the tokens",
                    "none",
                    "one setting for all names; `--no-token-positional-embeddings` leaves them out",
                ),
                Difference(
                    "weight decay",
                    "of all parameters",
                    "not of A_log, dt_bias and D",
                    "fairseq's trainer has one group of parameters; see below",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2405.21060",
        encoder=StateSpaceAttention,
        decoder=partial(StateSpaceAttention, causal=True),
        source="there is no distance between a target token and a source token",
        traits=Traits(training_time="nmD", is_matrix=False),
        flags=(
            Flag(
                name="state_size",
                argument="state_size",
                help="rows of the state for each channel (published: 64 and 128); there are twice the channels of the"
                " model",
                default=64,
                minimum=1,
            ),
        ),
    ),
)

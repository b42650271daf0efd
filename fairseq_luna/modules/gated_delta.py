"""Gated DeltaNet: linear attention that forgets, and writes only what its state does not yet return for a key."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.dropout import drop_steps
from ..ops.dtypes import accumulation_dtype
from ..ops.gated_delta_rule import DeltaState, gated_delta_rule, gated_delta_rule_step
from ..ops.padding import Padding
from ..published import Difference, Published
from ..usage_error import ArgumentError
from .attention import CausalAttention, EncoderAttention
from .declaration import Attention, Traits
from .multihead import QueriesKeysValues, merge_heads, split_heads
from .projection import project_together
from .short_convolution import SiluConvolution
from .state_space import decay_parameters

RATES = 0.0, 16.0  # what A is between at the start, as published


class GatedDelta(QueriesKeysValues):
    """The parameters of gated DeltaNet (arXiv 2412.06464), with keys and values of C channels.

    The op reads queries, keys and values after a short convolution with silu, and of each head and step

        g = -exp(A_log) softplus(a_proj(x) + dt_bias),     b = sigmoid(b_proj(x))

    The output is a projection of ``norm(y) * silu(gate_proj(x))``, with an RMS norm of each head.

    Args:
        options: those of :class:`.QueriesKeysValues`. Dropout is the probability that a head leaves out the value of a
            step, for all that read it.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        new, heads = self.new, self.num_heads
        self.gate_proj = new.input()
        self.a_proj, self.b_proj = (new.input(outputs=heads, bias=False) for _ in range(2))
        self.conv1d = SiluConvolution(embed_dim=3 * new.size, kernel_size=4 if self.causal else 7, bias=False)
        self.dt_bias, self.A_log = decay_parameters(heads, *RATES)
        self.norm = nn.RMSNorm(self.head_size, eps=1e-5)

    def projected(self, x: Tensor) -> Tensor:
        """What the convolution reads of ``x (T, B, C)``: ``(T, B, 3 C)``."""
        return torch.cat(project_together(x, self.q_proj, self.k_proj, self.v_proj), dim=-1)

    def arguments(self, x: Tensor, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Of the op, for ``x (T, B, C)``: q, k and v ``(B, H, T, D)``, log decay and beta ``(B, H, T)`` in fp32."""
        q, k, v = (split_heads(y, self.num_heads) for y in convolved.chunk(3, dim=-1))
        full = accumulation_dtype(x)
        # In the layout that gradients have: a compiled graph takes it for that of the functions between them.
        a, b = (y.to(full).permute(1, 2, 0).contiguous() for y in (self.a_proj(x), self.b_proj(x)))
        dt = F.softplus(a + self.dt_bias.to(full)[:, None])
        return q, k, drop_steps(v, self.dropout_p()), -dt * self.A_log.to(full).exp()[:, None], b.sigmoid()

    def gated(self, y: Tensor, x: Tensor) -> Tensor:
        """The output for ``x (T, B, C)``, of what its heads have read, ``y (B, H, T, D)``: ``(T, B, C)``."""
        full, gate = accumulation_dtype(y), self.gate_proj(x)
        normed = F.rms_norm(y.to(full), (self.head_size,), self.norm.weight.to(full), self.norm.eps)
        return self.out_proj((merge_heads(normed) * F.silu(gate.to(full))).to(gate.dtype))


class GatedDeltaAttention(GatedDelta, EncoderAttention):
    """Gated DeltaNet in two directions, linear in the length. Arguments: :class:`GatedDelta`.

    The published one is for decoders. Here the second half of the heads goes through the steps from the last to the
    first, so that it costs as much; the convolution reads three steps on each side.

    Raises:
        UsageError: as there, or if there is one head.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.num_heads < 2:
            advice = "gated-delta needs 2 or more in an encoder: half of them read from the end"
            raise ArgumentError("num_heads", self.num_heads, advice)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        convolved = self.conv1d.centred(self.projected(x), padding=padding)
        *given, log_decay, beta = self.arguments(x, convolved)
        # Before steps change places.
        log_decay, beta = (padding.zero(gate) for gate in (log_decay, beta))
        y = gated_delta_rule(*(half_turned(part) for part in (*given, log_decay, beta)))
        return self.gated(half_turned(y), x)


class GatedDeltaState(NamedTuple):
    """The state of a decoder."""

    memory: Tensor  # (B, H, D, D), at least fp32
    inputs: Tensor  # (B, 3, 3 C): the last ones of the convolution


class GatedDeltaCausalAttention(GatedDelta, CausalAttention):
    """Gated DeltaNet for decoders, with a state of constant size. Arguments: :class:`GatedDelta`.

    The state has C (D + 9) numbers.
    """

    State = GatedDeltaState

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        convolved, _ = self.conv1d.causal(self.projected(x), padding=padding)
        return self.gated(gated_delta_rule(*self.arguments(x, convolved), padding=padding), x)

    def attend_step(self, x: Tensor, padding: Padding, state: GatedDeltaState | None) -> tuple[Tensor, GatedDeltaState]:
        past = None if state is None else state.inputs
        convolved, inputs = self.conv1d.causal(self.projected(x), padding=padding, past=past)
        before = None if state is None else DeltaState(state.memory)
        y, after = gated_delta_rule_step(*self.arguments(x, convolved), before, padding=padding)
        return self.gated(y, x), GatedDeltaState(after.memory, inputs)


def half_turned(x: Tensor) -> Tensor:
    """``x (B, H, T, ...)`` with the steps of the second half of its heads from the last to the first."""
    first, second = x.split(-(-x.shape[1] // 2), dim=1)
    return torch.cat([first, second.flip(2)], dim=1)


ATTENTIONS = (
    Attention(
        name="gated-delta",
        published=Published(
            "arXiv 2412.06464; flash-linear-attention, and Qwen3-Next in transformers",
            (
                Difference(
                    "channels",
                    "keys and values C",
                    "keys 0.75 C, values 1.5 C",
                    "as many as in the other attentions, and heads for which a converted transformer has parameters",
                ),
                Difference(
                    "channels of a head",
                    "C / heads, 64 in the base models",
                    "256",
                    "`--encoder-attention-heads` and `--decoder-attention-heads` choose them, as for every name",
                ),
                Difference(
                    "biases",
                    "of queries, keys, values, gate and output",
                    "none",
                    "as fairseq's attention has; `bias=False` in Python leaves them out",
                ),
                Difference(
                    "norm of what a head has read",
                    "epsilon of 1e-5, and queries of norm 1",
                    "epsilon of 1e-5, and queries divided by sqrt(D)",
                    "without an epsilon the division would cancel. Theirs acts as ours times D: where a head reads"
                    " little, its output is smaller. In a new layer of 512 channels outputs differ by about half. Ours"
                    " stays, because trained checkpoints rest on it",
                ),
                Difference(
                    "in the encoder",
                    "half of the heads go from the last step to the first; the convolution sees three steps on each"
                    " side",
                    "decoder only",
                    "an encoder's words should see both sides at the same cost",
                ),
                Difference(
                    "position embeddings",
                    "fairseq's, added to the words",
                    "none",
                    "one setting for all names; `--no-token-positional-embeddings` leaves them out",
                ),
                Difference(
                    "weight decay",
                    "of all parameters",
                    "not of A_log and dt_bias",
                    "fairseq's trainer has one group of parameters; see below",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2412.06464",
        encoder=GatedDeltaAttention,
        decoder=GatedDeltaCausalAttention,
        source="its steps write into one state, in order: the source would be read word by word",
        traits=Traits(training_time="nD²", continuous=False, is_matrix=False),
    ),
)

"""Gated DeltaNet (arXiv 2412.06464): linear attention that forgets, and writes only the part of a value that is new.

Queries, keys and values of C channels go through a short convolution with silu. For each head, with unit q and k::

    decay_t = exp(-exp(A_log) softplus(W_a x_t + dt_bias)),     beta_t = sigmoid(W_b x_t)
    S_t = decay_t S_{t-1} + beta_t k_t (v_t - decay_t S_{t-1}^T k_t)^T           state, (D, D)
    y_t = S_t^T q_t
    out = W_o (silu(W_g x_t) * rms_norm(y_t))

Parameters: ``q_proj``, ``k_proj``, ``v_proj``, ``out_proj`` (W_o), ``gate_proj`` (W_g), ``a_proj`` (W_a), ``b_proj``
(W_b), ``conv1d``, ``dt_bias``, ``A_log`` and ``norm``. Differences from the paper are in the declaration at the end of
the file.
"""

from functools import partial
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
from .attention import SelfAttention
from .declaration import Attention, Traits
from .multihead import QueriesKeysValues, merge_heads, split_heads
from .projection import project_together
from .short_convolution import SiluConvolution
from .state_space import decay_parameters

RATES = 0.0, 16.0  # bounds of exp(A_log) at the start, as published


class GatedDeltaState(NamedTuple):
    """The state of a decoder."""

    memory: Tensor  # (B, H, D, D), at least fp32
    inputs: Tensor  # (B, 3, 3 C), the last inputs of the convolution


class GatedDeltaAttention(QueriesKeysValues, SelfAttention):
    """Gated DeltaNet, linear in the length; the state of a decoder has C (D + 9) numbers.

    The published one is for decoders. In the encoder's form the second half of the heads goes through the steps from
    the last to the first, so that it costs as much; the convolution reads three steps on each side.

    Args:
        options: arguments of :class:`.QueriesKeysValues` and :class:`.SelfAttention`. Dropout is the probability that a
            head leaves out the value of a step, for all that read it.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or is 1 in an encoder.
    """

    State = GatedDeltaState

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        linear, heads = self.linear, self.num_heads
        self.gate_proj = linear.input_projection()
        self.a_proj, self.b_proj = (linear.input_projection(outputs=heads, bias=False) for _ in range(2))
        kernel_size = 4 if self.causal else 7
        self.conv1d = SiluConvolution(embed_dim=3 * self.embed_dim, kernel_size=kernel_size, bias=False)
        self.dt_bias, self.A_log = decay_parameters(heads, *RATES)
        self.norm = nn.RMSNorm(self.head_size, eps=1e-5)
        if heads < 2 and not self.causal:
            advice = "gated-delta needs 2 or more in an encoder: half of them read from the end"
            raise ArgumentError("num_heads", heads, advice)

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        inputs = self.convolution_inputs(x)
        if self.causal:
            convolved, _ = self.conv1d.causal(inputs, padding=padding)
            return self.gate_and_project(gated_delta_rule(*self.op_arguments(x, convolved), padding=padding), x)
        convolved = self.conv1d.centered(inputs, padding=padding)
        *qkv, log_decay, beta = self.op_arguments(x, convolved)
        # Before steps change places.
        log_decay, beta = (padding.zero(gate) for gate in (log_decay, beta))
        y = gated_delta_rule(*(with_half_the_heads_reversed(part) for part in (*qkv, log_decay, beta)))
        return self.gate_and_project(with_half_the_heads_reversed(y), x)

    def attend_step(self, x: Tensor, padding: Padding, state: GatedDeltaState | None) -> tuple[Tensor, GatedDeltaState]:
        past = None if state is None else state.inputs
        convolved, inputs = self.conv1d.causal(self.convolution_inputs(x), padding=padding, past=past)
        before = None if state is None else DeltaState(state.memory)
        y, after = gated_delta_rule_step(*self.op_arguments(x, convolved), before, padding=padding)
        return self.gate_and_project(y, x), GatedDeltaState(after.memory, inputs)

    def convolution_inputs(self, x: Tensor) -> Tensor:
        """The inputs of the convolution, queries, keys and values of ``x (T, B, C)``: ``(T, B, 3 C)``."""
        return torch.cat(project_together(x, self.q_proj, self.k_proj, self.v_proj), dim=-1)

    def op_arguments(self, x: Tensor, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """q, k and v ``(B, H, T, D)``, and log decay and beta ``(B, H, T)`` in fp32, for ``x (T, B, C)``."""
        q, k, v = (split_heads(y, self.num_heads) for y in convolved.chunk(3, dim=-1))
        full = accumulation_dtype(x)
        # In the layout that gradients have, which a compiled graph expects of the functions between them.
        a, b = (y.to(full).permute(1, 2, 0).contiguous() for y in (self.a_proj(x), self.b_proj(x)))
        dt = F.softplus(a + self.dt_bias.to(full)[:, None])
        return q, k, drop_steps(v, self.dropout_p()), -dt * self.A_log.to(full).exp()[:, None], b.sigmoid()

    def gate_and_project(self, y: Tensor, x: Tensor) -> Tensor:
        """Normalize the heads' outputs ``(B, H, T, D)``, gate them with ``x (T, B, C)`` and project: ``(T, B, C)``."""
        full, gate = accumulation_dtype(y), self.gate_proj(x)
        normed = F.rms_norm(y.to(full), (self.head_size,), self.norm.weight.to(full), self.norm.eps)
        return self.out_proj((merge_heads(normed) * F.silu(gate.to(full))).to(gate.dtype))


def with_half_the_heads_reversed(x: Tensor) -> Tensor:
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
                    "norm of a head's output",
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
                    "an encoder's tokens should see both sides at the same cost",
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
                    "not of A_log and dt_bias",
                    "fairseq's trainer has one group of parameters; see below",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2412.06464",
        encoder=GatedDeltaAttention,
        decoder=partial(GatedDeltaAttention, causal=True),
        source="its steps write into one state, in order: the source would be read token by token",
        traits=Traits(training_time="nD²", continuous=False, is_matrix=False),
    ),
)

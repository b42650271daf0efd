"""The gated attention unit with mixed chunks of FLASH (arXiv 2202.10447): one head, and a gate.

Time is cut into chunks of c steps. With z = silu(W_z x), and q, k, q', k' scaled and shifted copies of z::

    v = silu(W_v x),   u = silu(W_u x)                               2 C channels each
    a_tj = relu( q_t . k_j / c + bias(t - j) )^2                     inside a chunk
    y_t  = sum_j a_tj v_j + q'_t^T mean_j( k'_j v_j^T )              plus the other, or earlier, chunks
    out  = W_o (u_t * y_t)

Parameters: ``shared_proj`` (W_z), ``v_proj``, ``gate_proj`` (W_u), ``out_proj``, ``scales`` and ``offsets`` of the four
copies, ``distance_bias``. The paper's unit replaces the feed-forward network too; here the layers keep theirs. Other
differences are in the declaration at the end of the file.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.mixed_chunk_attention import (
    ChunkState,
    allocate_chunk_state,
    mixed_chunk_attention,
    mixed_chunk_attention_step,
)
from ..ops.padding import Padding
from ..published import Difference, Published
from .argument_checks import check_positive
from .attention import SelfAttention
from .declaration import Attention, Flag, Traits
from .projection import project_together


class GatedAttention(SelfAttention):
    """A gated attention unit with mixed chunks, linear in the length.

    With S channels of keys, the state of a decoder has t (2 S + 2 C) numbers in the first chunk, then c (S + 2 C) + 4 S
    C. In an exported model it has t (2 S + 2 C) to the end. At padding the result is the bias of the output projection.

    Args:
        causal: for a decoder; see :class:`.SelfAttention`.
        chunk_size: c, the steps of a chunk. Scores are divided by it: it should not be far above a sentence's length.
        key_size: channels of queries and keys. Values and gate have 2 C.
        options: arguments of :class:`.SelfAttention`, without ``num_heads``; dropout acts on the weights in a chunk.

    Raises:
        UsageError: if ``chunk_size`` is below 1.
    """

    State = ChunkState

    def __init__(self, *, causal: bool = False, chunk_size: int = 256, key_size: int = 128, **options: Any) -> None:
        super().__init__(causal=causal, num_heads=1, **options)
        check_positive(chunk_size=chunk_size)
        self.chunk_size = chunk_size
        linear = self.linear
        self.shared_proj = linear.input_projection(outputs=key_size)
        self.v_proj = linear.input_projection(outputs=2 * self.embed_dim)
        self.gate_proj = linear.input_projection(outputs=2 * self.embed_dim)
        self.out_proj = linear.output_projection(inputs=2)
        # Scales and offsets of q, k, q' and k', as in the paper.
        self.scales = nn.Parameter(torch.randn(4, key_size) * 0.02)
        self.offsets = nn.Parameter(torch.zeros(4, key_size))
        # Ours: first the weights are 1/c. From the paper's start about 0, half of them are 0 and have no gradient.
        distances = chunk_size if causal else 2 * chunk_size - 1
        self.distance_bias = nn.Parameter(torch.full((distances,), chunk_size**-0.5))

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        inputs, gate = self.project_copies_and_gate(x)
        y = mixed_chunk_attention(*inputs, self.distance_bias, causal=self.causal, **self.op_options(padding))
        return self.gate_and_project(y, gate)

    def attend_step(self, x: Tensor, padding: Padding, state: ChunkState | None) -> tuple[Tensor, ChunkState]:
        inputs, gate = self.project_copies_and_gate(x)
        y, state = mixed_chunk_attention_step(*inputs, self.distance_bias, state, **self.op_options(padding))
        return self.gate_and_project(y, gate), state

    def state_with_room(self, state: ChunkState, max_steps: int) -> ChunkState:
        return allocate_chunk_state(state, self.scales.shape[1], self.chunk_size)

    def op_options(self, padding: Padding) -> dict[str, Any]:
        return {**super().op_options(padding), "chunk_size": self.chunk_size}

    def project_copies_and_gate(self, x: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
        """q, k, q', k' and v of ``x (T, B, C)``, each ``(B, 1, T, channels)``, and the gate ``(T, B, 2 C)``."""
        shared = F.silu(self.shared_proj(x))
        copies = (torch.addcmul(offset, shared, scale) for scale, offset in zip(self.scales, self.offsets, strict=True))
        values, gate = (F.silu(y) for y in project_together(x, self.v_proj, self.gate_proj))
        q, k, far_q, far_k, v = (y.transpose(0, 1)[:, None] for y in (*copies, values))
        return (q, k, far_q, far_k, v), gate

    def gate_and_project(self, y: Tensor, gate: Tensor) -> Tensor:
        """``y (B, 1, T, 2 C)`` times ``gate (T, B, 2 C)``, projected: ``(T, B, C)``."""
        return self.out_proj(gate * y[:, 0].transpose(0, 1))


ATTENTIONS = (
    Attention(
        name="flash",
        published=Published(
            "arXiv 2202.10447; FLASH-pytorch, as the authors published no code but the paper's",
            (
                Difference(
                    "feed-forward network",
                    "kept",
                    "none: two units in place of attention and network",
                    "layers are the same for all names, so a model has more parameters",
                ),
                Difference(
                    "earlier chunks, in the decoder",
                    "the mean over their steps",
                    "the sum of the means of chunks",
                    "a sum grows with the length, beyond what training has seen",
                ),
                Difference(
                    "biases by distance at the start",
                    "1/sqrt(chunk), so that all weights are 1/chunk",
                    "about 0",
                    "about 0, half of the weights are 0 and have no gradient",
                ),
                Difference(
                    "biases by distance",
                    "a number for each distance in a chunk",
                    "the same up to 512 steps, then two rotated vectors; in FLASH-pytorch T5's buckets",
                    "a chunk has 256 steps by default",
                ),
            ),
        ),
        paper="https://arxiv.org/abs/2202.10447",
        encoder=GatedAttention,
        decoder=partial(GatedAttention, causal=True),
        source="its chunks are of one sequence",
        has_heads=False,
        traits=Traits(
            training_time="nc, c the chunk",
            decoder_state="grows up to one chunk",
            sees_every_step=False,
            is_matrix=False,
        ),
        flags=(Flag(name="attention_chunk", argument="chunk_size", help="steps of a chunk", default=256, minimum=1),),
    ),
)

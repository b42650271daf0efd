"""FLASH's gated attention unit, for encoders and decoders."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.mixed_chunk_attention import ChunkState, mixed_chunk_attention, mixed_chunk_attention_step, with_room
from ..ops.padding import Padding
from ..published import Difference, Published
from .attention import CausalAttention, EncoderAttention
from .checks import check_positive
from .declaration import Attention, Flag, Traits
from .multihead import Multihead
from .projection import project_together


class GatedUnit(Multihead):
    """A gated attention unit with mixed chunks (arXiv 2202.10447): one head, and a gate.

    The paper's unit replaces the feed-forward network too; here the layers keep theirs. At padding the result is the
    bias of the output projection.

    Args:
        chunk_size: c, the steps of a chunk. Scores are divided by it: it should not be far above a sentence's length.
        key_size: channels of queries and keys. Values and gate have 2 C.
        options: those of :class:`.Multihead`, without ``num_heads``; dropout is of the weights in a chunk.

    Raises:
        UsageError: if ``chunk_size`` is below 1.
    """

    def __init__(self, *, chunk_size: int = 256, key_size: int = 128, **options: Any) -> None:
        super().__init__(num_heads=1, **options)
        check_positive(chunk_size=chunk_size)
        self.chunk_size = chunk_size
        new = self.new
        self.shared_proj = new.input(outputs=key_size)
        self.v_proj = new.input(outputs=2 * new.size)
        self.gate_proj = new.input(outputs=2 * new.size)
        self.out_proj = new.output(inputs=2)
        # Scales and offsets of q, k, q' and k', as in the paper.
        self.scales = nn.Parameter(torch.randn(4, key_size) * 0.02)
        self.offsets = nn.Parameter(torch.zeros(4, key_size))
        # Ours: first the weights are 1/c. From the paper's start about 0, half of them are 0 and have no gradient.
        distances = chunk_size if self.causal else 2 * chunk_size - 1
        self.distance_bias = nn.Parameter(torch.full((distances,), chunk_size**-0.5))

    def parts(self, x: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Of ``x (T, B, C)``: q, k, q', k' and v, each ``(B, 1, T, channels)``, and the gate ``(T, B, 2 C)``."""
        shared = F.silu(self.shared_proj(x))
        copies = (torch.addcmul(offset, shared, scale) for scale, offset in zip(self.scales, self.offsets, strict=True))
        values, gate = (F.silu(y) for y in project_together(x, self.v_proj, self.gate_proj))
        q, k, far_q, far_k, v = (y.transpose(0, 1)[:, None] for y in (*copies, values))
        return (q, k, far_q, far_k, v), gate

    def options(self, padding: Padding) -> dict[str, Any]:
        return super().options(padding) | {"chunk_size": self.chunk_size}

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        parts, gate = self.parts(x)
        y = mixed_chunk_attention(*parts, self.distance_bias, causal=self.causal, **self.options(padding))
        return self.gated(y, gate)

    def gated(self, y: Tensor, gate: Tensor) -> Tensor:
        """``y (B, 1, T, 2 C)`` and ``gate (T, B, 2 C)`` to ``(T, B, C)``."""
        return self.out_proj(gate * y[:, 0].transpose(0, 1))


class GatedAttention(GatedUnit, EncoderAttention):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`GatedUnit`."""


class GatedCausalAttention(GatedUnit, CausalAttention):
    """Causal self-attention for decoders. Arguments: :class:`GatedUnit`.

    With S channels of keys, the state has t (2 S + 2 C) numbers in the first chunk, then c (S + 2 C) + 4 S C. In an
    exported model it has t (2 S + 2 C) to the end.
    """

    State = ChunkState

    def attend_step(self, x: Tensor, padding: Padding, state: ChunkState | None) -> tuple[Tensor, ChunkState]:
        parts, gate = self.parts(x)
        y, state = mixed_chunk_attention_step(*parts, self.distance_bias, state, **self.options(padding))
        return self.gated(y, gate), state

    def state_with_room(self, state: ChunkState, tokens: int) -> ChunkState:
        return with_room(state, self.scales.shape[1], self.chunk_size)


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
        decoder=GatedCausalAttention,
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

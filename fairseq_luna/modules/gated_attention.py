"""FLASH's gated attention unit, for encoders and decoders."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.mixed_chunk_attention import (
    ChunkState,
    initial_chunk,
    mixed_chunk_attention,
    mixed_chunk_attention_step,
)
from ..usage_error import ArgumentError
from .dropout import Dropout, dropout_probability
from .generation_state import GenerationState, IncrementalState
from .masks import check_mask
from .projection import Projections, project_together


class GatedProjections(nn.Module):
    """The parameters of a gated attention unit with mixed chunks (arXiv 2202.10447): one head, and a gate.

    The paper's unit replaces the feed-forward network too; here the layers keep theirs.

    Args:
        embed_dim: channels of the sequence, C.
        chunk_size: c, the steps of a chunk. Scores are divided by it: it should not be far above a sentence's length.
        key_size: channels of queries and keys. Values and gate have 2 C.
        dropout: dropout probability of the weights in a chunk.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if ``chunk_size`` is below 1.
    """

    causal: ClassVar[bool]

    def __init__(
        self,
        *,
        embed_dim: int,
        chunk_size: int = 256,
        key_size: int = 128,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        if chunk_size < 1:
            raise ArgumentError("chunk_size", chunk_size, "must be 1 or more")
        self.chunk_size = chunk_size
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.shared_proj = new.input(outputs=key_size)
        self.v_proj = new.input(outputs=2 * embed_dim)
        self.gate_proj = new.input(outputs=2 * embed_dim)
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

    def options(self, padding_mask: Tensor | None) -> dict[str, Any]:
        """Keyword arguments of the attention."""
        p = dropout_probability(self.dropout_module)
        return {"chunk_size": self.chunk_size, "padding_mask": padding_mask, "dropout_p": p}

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        """The whole pass over ``x (T, B, C)``: ``(T, B, C)``."""
        parts, gate = self.parts(x)
        y = mixed_chunk_attention(*parts, self.distance_bias, causal=self.causal, **self.options(padding_mask))
        return self.output(y, gate)

    def output(self, y: Tensor, gate: Tensor) -> Tensor:
        """``y (B, 1, T, 2 C)`` and ``gate (T, B, 2 C)`` to ``(T, B, C)``."""
        return self.out_proj(gate * y[:, 0].transpose(0, 1))


class GatedAttention(GatedProjections):
    """Bidirectional self-attention for encoders, linear in the length. Arguments: :class:`GatedProjections`."""

    causal = False

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each step of ``x`` to those of its chunk, and to the mean over all of them.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.

        Returns:
            ``(T, B, C)``; at padding the bias of the output projection.
        """
        check_mask(padding_mask, x)
        return self.attend(x, padding_mask)


class GatedCausalAttention(GenerationState, GatedProjections):
    """Causal self-attention for decoders. Arguments: :class:`GatedProjections`.

    With S channels of keys, the state has t (2 S + 2 C) numbers in the first chunk, then c (S + 2 C) + 4 S C. In an
    exported model it has t (2 S + 2 C) to the end.
    """

    causal = True

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Attend from each step of ``x`` to the earlier ones of its chunk, and to the mean over earlier chunks.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``; at padding the bias of the output projection.
        """
        check_mask(padding_mask, x)
        if incremental_state is None:
            return self.attend(x, padding_mask)
        parts, gate = self.parts(x)
        saved = self.load_state(incremental_state)
        state = initial_chunk(parts[1], parts[4]) if saved is None else ChunkState(**saved)
        y, state = mixed_chunk_attention_step(*parts, self.distance_bias, state, **self.options(padding_mask))
        self.save_state(
            incremental_state, {name: tensor for name, tensor in state._asdict().items() if tensor is not None}
        )
        return self.output(y, gate)

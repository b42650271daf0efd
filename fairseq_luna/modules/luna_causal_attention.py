"""Luna's causal attention for decoders."""

import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from ..ops.folded_attention import folding_pays, scores_of
from ..ops.luna_causal_attention import (
    LunaCausalState,
    initial_state,
    luna_causal_attention_from_scores,
    luna_causal_attention_step,
    pack_scores,
    state_after,
)
from .dropout import dropout_probability
from .generation_state import GenerationState, IncrementalState, ModuleState
from .heads import mask_of, merge_heads, split_heads
from .projection import Projections, affine_of
from .short_convolution import convolution_of, convolved


class LunaCausalAttention(GenerationState):
    """Causal pack and unpack attention (arXiv 2106.01540, section 3.4; ``docs/design.md``, 3.2).

    Steps do not see later ones. Padded steps are neither seen nor counted, at any position. The incremental state has
    constant size.

    Args:
        embed_dim: channels of the sequence and of the packed slots.
        num_heads: attention heads.
        activation: the positive function of the pack scores, "softplus" or "elu".
        dropout: dropout probability of the attention weights.
        tie_kv: keys and values of the sequence are one projection, the paper's default.
        kernel_size: kernel size of a convolution over X before the projections, odd; 0 = none, as in the paper.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if ``kernel_size`` is even or negative.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        activation: str = "softplus",
        dropout: float = 0.0,
        tie_kv: bool = True,
        kernel_size: int = 0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.activation = activation
        self.tie_kv = tie_kv
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.pq_proj = new.input()
        self.q_proj = new.input()
        self.pc_proj = new.input()
        if tie_kv:
            self.c_proj = new.input()
        else:
            self.k_proj = new.input()
            self.v_proj = new.input()
        self.out_proj = new.output()
        self.convolution = convolution_of(kernel_size, embed_dim=embed_dim, flag="--luna-kernel-size")

    def forward(
        self,
        query: Tensor,
        packed: Tensor | None,
        *,
        padding_mask: Tensor | None = None,
        packed_padding_mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend from each step to itself and the earlier ones, through the packed slots.

        With ``incremental_state``, ``query`` and ``padding_mask`` contain only the new steps, and ``packed`` and
        ``memory`` are read at the first step only.

        Args:
            query: X, ``(T, B, C)``.
            packed: P, ``(L, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            packed_padding_mask: ``(B, L)`` bool, True = padding: the slot is not read.
            memory: ``(S, B, C)``, steps before the first one (fairseq's cross+self attention).
            memory_padding_mask: ``(B, S)`` bool, True = padding.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)`` and the unpack weights ``(H, B, T, L)``.
        """
        saved = self.load_state(incremental_state)
        query, last_inputs = convolved(query, self.convolution, saved, padding_mask)
        if incremental_state is not None:
            state = self.generation_state(saved, packed, memory, memory_padding_mask)
            y, weights, state = luna_causal_attention_step(
                self.queries(query),
                *self.keys_and_values(query),
                self.pack_keys(query),
                state,
                activation=self.activation,
                padding_mask=padding_mask,
                packed_padding_mask=packed_padding_mask,
                dropout_p=dropout_probability(self.dropout_module),
            )
            self.save_state(incremental_state, state._asdict() | last_inputs)
        else:
            y, weights = self.whole_sequence(
                query, packed, padding_mask, packed_padding_mask, memory, memory_padding_mask
            )
        return self.out_proj(merge_heads(y)), weights.transpose(0, 1)

    def whole_sequence(
        self,
        query: Tensor,
        packed: Tensor | None,
        padding_mask: Tensor | None,
        packed_padding_mask: Tensor | None,
        memory: Tensor | None,
        memory_padding_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """All steps at once: ``(B, H, T, D)`` and the unpack weights ``(B, H, T, L)``."""
        assert packed is not None, "the packed slots are needed"
        steps = query.shape[0]
        if memory is not None:
            padding_mask = joined_padding(memory, memory_padding_mask, query, padding_mask)
            query = torch.cat([memory, query])
        y, weights = luna_causal_attention_from_scores(
            self.queries(query),
            *self.keys_and_values(query),
            self.pack_scores(self.packed_queries(packed), query),
            activation=self.activation,
            padding_mask=padding_mask,
            packed_padding_mask=packed_padding_mask,
            dropout_p=dropout_probability(self.dropout_module),
        )
        return y[:, :, -steps:], weights[:, :, -steps:]

    def generation_state(
        self,
        saved: ModuleState | None,
        packed: Tensor | None,
        memory: Tensor | None,
        memory_padding_mask: Tensor | None,
    ) -> LunaCausalState:
        """The saved state, or the state before the first step."""
        if saved is not None:
            return LunaCausalState(*(saved[name] for name in LunaCausalState._fields))
        assert packed is not None, "the first step needs the packed slots"
        pq = self.packed_queries(packed)
        if memory is None:
            return initial_state(pq)
        k, v = self.keys_and_values(memory)
        pk = self.pack_keys(memory)
        return state_after(k, v, pq, pk, activation=self.activation, padding_mask=memory_padding_mask)

    def queries(self, x: Tensor) -> Tensor:
        return split_heads(self.q_proj(x), self.num_heads)

    def packed_queries(self, packed: Tensor) -> Tensor:
        return split_heads(self.pq_proj(packed), self.num_heads)

    def pack_keys(self, x: Tensor) -> Tensor:
        """Keys of ``x (T, B, C)`` for the pack attention: ``(B, H, T, D)``."""
        return split_heads(self.pc_proj(x), self.num_heads)

    def pack_scores(self, pq: Tensor, x: Tensor) -> Tensor:
        """Pack scores of the steps ``x (T, B, C)`` and slots ``pq (B, H, L, D)``: ``(B, H, T, L)``."""
        steps, _, channels = x.shape
        slots = self.num_heads * pq.shape[2]
        key = affine_of(self.pc_proj)
        if key is None or not folding_pays(steps=steps, slots=slots, channels=channels, maps=1, products=1):
            return pack_scores(pq, self.pack_keys(x))
        return scores_of(x.transpose(0, 1), pq, key).unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of ``x (T, B, C)``: each ``(B, H, T, D)``."""
        if self.tie_kv:
            k = v = split_heads(self.c_proj(x), self.num_heads)
        else:
            k = split_heads(self.k_proj(x), self.num_heads)
            v = split_heads(self.v_proj(x), self.num_heads)
        return k, v


def joined_padding(
    memory: Tensor, memory_padding_mask: Tensor | None, query: Tensor, padding_mask: Tensor | None
) -> Tensor | None:
    """The padding mask of memory and query concatenated: ``(B, S + T)``, or None if neither is padded."""
    if memory_padding_mask is None and padding_mask is None:
        return None
    return torch.cat([mask_of(memory, memory_padding_mask), mask_of(query, padding_mask)], dim=1)

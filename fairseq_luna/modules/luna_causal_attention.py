"""Luna's causal attention for decoders."""

from typing import Any

import torch
from torch import Tensor, nn

from ..ops import luna_causal_attention as op
from ..ops.folded_attention import folding_pays, scores_of
from ..ops.prefix_attention import PrefixMean
from .checks import check_choice, check_mask
from .generation_state import GenerationState, IncrementalState, ModuleState, as_state, from_state
from .multihead import Multihead, beams_apart, beams_of, joined_padding, one_by_one
from .projection import affine_of
from .short_convolution import convolution_of, convolved


class LunaCausalAttention(GenerationState, Multihead):
    """Causal pack and unpack attention (arXiv 2106.01540, section 3.4; ``docs/mathematics.md``).

    Steps do not see later ones. Padded steps are neither seen nor counted, at any position. The incremental state has
    constant size.

    Args:
        activation: the positive function of the pack scores, "softplus" or "elu".
        tie_kv: keys and values of the sequence are one projection, the paper's default.
        kernel_size: kernel size of a convolution over X before the projections, odd; 0 = none, as in the paper.
        kernel: "torch", or "triton" for training on a GPU; then the unpack weights may be None.
        options: those of :class:`.Multihead`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, ``activation`` or ``kernel`` is unknown, or
            ``kernel_size`` is even or negative.
    """

    def __init__(
        self,
        *,
        activation: str = "softplus",
        tie_kv: bool = True,
        kernel_size: int = 0,
        kernel: str = "torch",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("activation", activation, tuple(op.PACK_ACTIVATIONS))
        check_choice("kernel", kernel, tuple(op.KERNELS))
        self.activation = activation
        self.kernel = kernel
        self.tie_kv = tie_kv
        new = self.new
        self.pq_proj = new.input()
        self.q_proj = new.input()
        self.pc_proj = new.input()
        if tie_kv:
            self.c_proj = new.input()
        else:
            self.k_proj = new.input()
            self.v_proj = new.input()
        self.out_proj = new.output()
        self.convolution = convolution_of(kernel_size, embed_dim=new.size)

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
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each step to itself and the earlier ones, through the packed slots.

        With ``incremental_state``, ``query`` and ``padding_mask`` contain only the new steps, and the other tensors are
        read at the first step only. Then the batch of ``query`` may be a multiple of that of the others: the
        consecutive rows that read one sentence are its beams.

        Args:
            query: X, ``(T, B, C)``.
            packed: P, ``(L, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            packed_padding_mask: ``(B, L)`` bool, True = padding: a padded slot is not read.
            memory: ``(S, B, C)``, steps before the first one (fairseq's cross+self attention).
            memory_padding_mask: ``(B, S)`` bool, True = padding.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)`` and the unpack weights ``(H, B, T, L)``, or None.
        """
        check_mask(padding_mask, query)
        check_mask(packed_padding_mask, packed, "packed_padding_mask")
        check_mask(memory_padding_mask, memory, "memory_padding_mask")
        saved = self.load_state(incremental_state)
        query, last_inputs = convolved(query, self.convolution, saved, padding_mask)
        if incremental_state is None:
            y, weights = self.whole_sequence(
                query, packed, padding_mask, packed_padding_mask, memory, memory_padding_mask
            )
        else:
            constants = self.load_constants(incremental_state)
            if saved is None or constants is None:
                assert packed is not None, "the first step needs the packed slots"
                beams = beams_of(query.shape[1], packed.shape[1])
                constants = as_state(op.slots_of(self.heads_of(self.pq_proj, packed), packed_padding_mask))
                self.save_constants(incremental_state, constants, beams=beams)
                saved = self.first_state(constants["pq"], memory, memory_padding_mask, beams)
            found = []
            for now, mask in one_by_one(query, padding_mask):
                *outputs, saved = self.next_step(now, mask, from_state(op.Slots, constants), saved)
                found.append(outputs)
            self.save_state(incremental_state, saved | last_inputs)
            y, weights = (x[0] if len(x) == 1 else torch.cat(x, dim=2) for x in zip(*found, strict=True))
        return self.output(y), None if weights is None else weights.transpose(0, 1)

    def whole_sequence(
        self,
        query: Tensor,
        packed: Tensor | None,
        padding_mask: Tensor | None,
        packed_padding_mask: Tensor | None,
        memory: Tensor | None,
        memory_padding_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """All steps at once: ``(B, H, T, D)`` and the unpack weights ``(B, H, T, L)``."""
        assert packed is not None, "the packed slots are needed"
        if memory is not None:
            padding_mask = joined_padding(memory, memory_padding_mask, query, padding_mask)
            query = torch.cat([memory, query])
        pq = self.heads_of(self.pq_proj, packed)
        scores = self.folded_scores(pq, query)
        projections = [self.q_proj, *self.key_and_value_projections(), *([self.pc_proj] if scores is None else [])]
        q, *others = self.heads_of_each(query, *projections)
        if scores is None:
            scores = op.pack_scores(pq, others.pop())
        y, weights = op.KERNELS[self.kernel](
            q,
            others[0],
            others[-1],
            scores,
            activation=self.activation,
            packed_padding_mask=packed_padding_mask,
            **self.options(padding_mask),
        )
        if memory is not None:
            y = y[:, :, len(memory) :]
            weights = None if weights is None else weights[:, :, len(memory) :]
        return y, weights

    def first_state(
        self, pq: Tensor, memory: Tensor | None, memory_padding_mask: Tensor | None, beams: int
    ) -> ModuleState:
        """The state before the first step of generation."""
        if memory is None:
            state = op.initial_state(pq, tied=self.tie_kv)
        else:
            scores = self.heads_of(self.pc_proj, memory) @ pq.mT
            k, v = self.keys_and_values(memory)
            state = op.state_after(
                k, v, scores, tied=self.tie_kv, activation=self.activation, padding_mask=memory_padding_mask
            )
        return {name: tensor.repeat_interleave(beams, dim=0) for name, tensor in state._asdict().items()}

    def next_step(
        self, query: Tensor, padding_mask: Tensor | None, slots: op.Slots, saved: ModuleState
    ) -> tuple[Tensor, Tensor, ModuleState]:
        """A further step of generation: results as of :meth:`whole_sequence`, and the state after it."""
        pq, added = slots
        beams = beams_of(query.shape[1], pq.shape[0])
        scores = self.heads_of(self.pc_proj, query, beams=beams) @ pq.mT
        if beams > 1:
            scores = beams_apart(scores, beams)
            added = None if added is None else added.repeat_interleave(beams, 0)
        y, weights, state = op.luna_causal_attention_step(
            self.heads_of(self.q_proj, query),
            *self.keys_and_values(query),
            scores,
            from_state(PrefixMean, saved),
            activation=self.activation,
            added=added,
            **self.options(padding_mask),
        )
        return y, weights, state._asdict()

    def folded_scores(self, pq: Tensor, x: Tensor) -> Tensor | None:
        """Pack scores ``(B, H, T, L)`` of ``x (T, B, C)`` without its keys, or None if that would not be cheaper."""
        steps, _, channels = x.shape
        slots = self.num_heads * pq.shape[2]
        key = affine_of(self.pc_proj)
        if key is None or not folding_pays(steps=steps, slots=slots, channels=channels, maps=1, products=1):
            return None
        return scores_of(x.transpose(0, 1), pq, key).unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def key_and_value_projections(self) -> list[nn.Module]:
        """The two, or the one that is both if they are tied."""
        return [self.c_proj] if self.tie_kv else [self.k_proj, self.v_proj]

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of ``x (T, B, C)``: each ``(B, H, T, D)``."""
        projected = [self.heads_of(projection, x) for projection in self.key_and_value_projections()]
        return projected[0], projected[-1]

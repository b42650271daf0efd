"""Causal block attention for decoders."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ops.block_attention import BlockState, block_attention_step, initial_state, unordered_block_attention_step
from ..ops.block_partition import cut_by_size
from ..usage_error import ArgumentError
from .block_projections import BlockProjections, same_blocks
from .dropout import dropout_probability
from .generation_state import GenerationState, IncrementalState, ModuleState
from .heads import merge_heads, split_heads
from .masks import check_mask
from .short_convolution import convolved


class BlockCausalAttention(GenerationState, BlockProjections):
    """Causal attention in two levels (``docs/mathematics.md``).

    A token attends to its own block up to itself, and its block to the summaries of the earlier blocks. The block size
    is fixed, because generation does not know the length. Its state grows by one summary per complete block. Padded
    steps are neither seen nor counted, at any position.

    Args:
        block_size: tokens per block.
        options: those of :class:`.BlockProjections`; an unordered block's mean or sum is over the tokens up to each.

    Raises:
        UsageError: if ``block_size`` is not positive, or :class:`.BlockProjections` refuses an option.
    """

    def __init__(self, *, block_size: int = 8, **options: Any) -> None:
        super().__init__(**options)
        if block_size < 1:
            raise ArgumentError("block_size", block_size, "must be 1 or more, such as 8")
        self.block_size = block_size

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Attend from each token to itself and the earlier ones.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``; undefined, but finite, at padding.
        """
        check_mask(padding_mask, x)
        saved = self.load_state(incremental_state)
        x, last_inputs = convolved(x, self.convolution, saved, padding_mask)
        if incremental_state is not None:
            y, state = self.next_steps(x, padding_mask, saved)
            kept = {name: tensor for name, tensor in state._asdict().items() if tensor is not None}
            self.save_state(incremental_state, kept | last_inputs)
            return y
        return self.attend(x, same_blocks(cut_by_size, self.block_size, x, padding_mask), causal=True)

    def next_steps(
        self, x: Tensor, padding_mask: Tensor | None, saved: ModuleState | None
    ) -> tuple[Tensor, BlockState]:
        """Output and new state for the new steps ``x (T, B, C)``, usually one."""
        halves = self.output_halves()

        def finish(z: Tensor) -> Tensor:
            if halves is None:
                return z
            return split_heads(F.linear(merge_heads(z), halves.of_z, halves.bias), self.num_heads)

        options: dict[str, Any] = {
            "block_size": self.block_size,
            "finish": finish,
            "padding_mask": padding_mask,
            "dropout_p": dropout_probability(self.dropout_module),
        }
        state = None
        if saved is not None:
            state = BlockState(**{name: tensor for name, tensor in saved.items() if name in BlockState._fields})
        if self.is_ordered:
            q, k, v = self.queries_keys_values(x)
            state = state or initial_state(v, finish)
            y, z, state = block_attention_step(q, k, v, self.project_summaries, state, **options)
        else:
            v = self.block_values(x)
            state = state or initial_state(v, finish)
            y, z, state = unordered_block_attention_step(
                v, self.project_summaries, state, reduce=self.unordered, **options
            )
        y, z = merge_heads(y), merge_heads(z)
        if halves is None:
            return self.out_proj(torch.cat([y, z], dim=-1)), state
        return torch.addmm(z.flatten(0, 1), y.flatten(0, 1), halves.of_y.t()).view_as(x), state

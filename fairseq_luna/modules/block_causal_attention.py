"""Block attention for decoders: no token sees a later one, and generation keeps one summary for each closed block."""

from typing import Any

from torch import Tensor

from ..ops.block_attention import BlockState, block_attention_step, initial_state, unordered_block_attention_step
from ..ops.block_partition import cut_by_size
from ..usage_error import UsageError
from .block_attention import TwoLevels, mask_of
from .generation_state import GenerationState, IncrementalState, ModuleState
from .short_convolution import convolved


class BlockCausalAttention(GenerationState, TwoLevels):
    """Causal attention in two levels (``docs/design.md``, 3.5).

    A token attends to its own block up to itself; its block reads the summaries of the blocks before it. The block
    size is fixed, since generation does not know the length. A padded step is not seen and not counted, wherever it
    stands.

    Args:
        block_size: tokens in a block.
        options: those of :class:`.block_attention.TwoLevels`; "mean" or "sum" of unordered blocks run up to the token.

    Raises:
        UsageError: if ``block_size`` is not positive, or :class:`.block_attention.TwoLevels` refuses an option.
    """

    def __init__(self, *, block_size: int = 8, **options: Any) -> None:
        super().__init__(**options)
        if block_size < 1:
            raise UsageError(f"--decoder-block-size {block_size}: must be 1 or more, such as 8")
        self.block_size = block_size

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Attend from each token to itself and the tokens before it.

        With ``incremental_state``, ``x`` and ``padding_mask`` hold only the newest steps; what came before is in the
        state.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            incremental_state: fairseq's generation state.

        Returns:
            ``(T, B, C)``; without meaning, but finite, at padding.
        """
        saved = self.load_state(incremental_state)
        x, kept = convolved(x, self.convolution, saved, padding_mask)
        if incremental_state is not None:
            y, state = self.next_steps(x, padding_mask, saved)
            self.save_state(incremental_state, state._asdict() | kept)
            return y
        return self.attend(x, cut_by_size(mask_of(x, padding_mask), self.block_size), causal=True)

    def next_steps(
        self, x: Tensor, padding_mask: Tensor | None, saved: ModuleState | None
    ) -> tuple[Tensor, BlockState]:
        """The newest steps ``x (T, B, C)``, usually one, from the state that the last ones left; and theirs."""
        before = None if saved is None else BlockState(*(saved[name] for name in BlockState._fields))
        if self.is_ordered:
            q, k, v = self.queries_keys_values(x)
            state = before or initial_state(v, self.block_size)
            y, z, state = block_attention_step(
                q, k, v, self.project_summaries, state, padding_mask=padding_mask, dropout_p=self.dropout_p
            )
        else:
            v = self.block_values(x)
            state = before or initial_state(v, 0)
            y, z, state = unordered_block_attention_step(
                v,
                self.project_summaries,
                state,
                reduce=self.unordered,
                block_size=self.block_size,
                padding_mask=padding_mask,
                dropout_p=self.dropout_p,
            )
        return self.joined(y, z), state

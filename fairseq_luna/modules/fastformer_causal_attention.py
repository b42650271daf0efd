"""Fastformer's causal attention: the decoder's self-attention, with a state of fixed size in generation."""

from torch import Tensor

from ..ops.fastformer_attention import (
    FastformerState,
    fastformer_causal_attention,
    fastformer_causal_attention_step,
    initial_state,
)
from .fastformer_projections import FastformerProjections
from .generation_state import GenerationState, IncrementalState
from .short_convolution import convolved


class FastformerCausalAttention(FastformerProjections, GenerationState):
    """Additive self-attention in which no step sees a later one (derived in ``docs/fastformer.md``).

    :class:`.FastformerProjections` has the arguments. A padded step is not seen, wherever it stands. Dropout takes
    what a step gives to the pooled vectors away from all later steps alike, and leaves the softmax as it is.
    """

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Let each step of ``x`` meet the pooled queries and keys of itself and the steps before it.

        With ``incremental_state`` ``x`` holds only the newest steps; what came before is in the state.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            incremental_state: fairseq's generation state.

        Returns:
            ``(T, B, C)``.
        """
        saved = self.load_state(incremental_state)
        x, kept = convolved(x, self.convolution, saved, padding_mask)
        q, k, v = self.queries_keys_values(x)
        dropout = self.dropout_module
        if incremental_state is None:
            u, global_query = fastformer_causal_attention(
                q, k, v, self.maps(), padding_mask=padding_mask, dropout=dropout
            )
        else:
            if saved is None:
                state = initial_state(q)
            else:
                state = FastformerState(*(saved[name] for name in FastformerState._fields))
            u, global_query, state = fastformer_causal_attention_step(
                q, k, v, self.maps(), state, padding_mask=padding_mask, dropout=dropout
            )
            self.save_state(incremental_state, state._asdict() | kept)
        return self.output(u, q, global_query)

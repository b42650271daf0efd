"""Fastformer's causal attention for decoders."""

from torch import Tensor

from ..ops.fastformer_attention import (
    FastformerState,
    fastformer_causal_attention,
    fastformer_causal_attention_step,
    initial_state,
)
from .dropout import dropout_probability
from .fastformer_projections import FastformerProjections
from .generation_state import GenerationState, IncrementalState
from .masks import check_mask
from .short_convolution import convolved


class FastformerCausalAttention(GenerationState, FastformerProjections):
    """Causal additive self-attention with a state of constant size (derived in ``docs/mathematics.md``).

    Arguments are those of :class:`.FastformerProjections`. Padded steps are not seen, at any position. Dropout removes
    a step from the pooled vectors of all later steps, and leaves the softmax denominators unchanged.
    """

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """Combine each step of ``x`` with the pooled queries and keys of itself and the earlier steps.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            incremental_state: fairseq's state for generation.

        Returns:
            ``(T, B, C)``.
        """
        check_mask(padding_mask, x)
        saved = self.load_state(incremental_state)
        x, last_inputs = convolved(x, self.convolution, saved, padding_mask)
        q, k, v = self.queries_keys_values(x)
        dropout_p = dropout_probability(self.dropout_module)
        if incremental_state is None:
            u, global_query = fastformer_causal_attention(
                q, k, v, self.maps(), padding_mask=padding_mask, dropout_p=dropout_p
            )
        else:
            if saved is None:
                state = initial_state(q)
            else:
                state = FastformerState(*(saved[name] for name in FastformerState._fields))
            u, global_query, state = fastformer_causal_attention_step(
                q, k, v, self.maps(), state, padding_mask=padding_mask, dropout_p=dropout_p
            )
            self.save_state(incremental_state, state._asdict() | last_inputs)
        return self.output(u, q, global_query)

"""Luna's causal attention: pack with a positive function of each score, unpack with a softmax over the packed slots."""

from .chunked import luna_causal_attention, luna_causal_attention_from_scores
from .recurrent import initial_state, luna_causal_attention_step, state_after
from .shared import PACK_ACTIVATIONS, pack_scores, pack_weights, scaled

__all__ = [
    "PACK_ACTIVATIONS",
    "initial_state",
    "luna_causal_attention",
    "luna_causal_attention_from_scores",
    "luna_causal_attention_step",
    "pack_scores",
    "pack_weights",
    "scaled",
    "state_after",
]

"""Luna's causal attention: pack by a positive function, read back by a softmax over the packed slots."""

from .chunked import luna_causal_attention, luna_causal_attention_of_scores, pack_scores
from .recurrent import LunaCausalState, initial_state, luna_causal_attention_step, state_after

__all__ = [
    "LunaCausalState",
    "initial_state",
    "luna_causal_attention",
    "luna_causal_attention_of_scores",
    "luna_causal_attention_step",
    "pack_scores",
    "state_after",
]

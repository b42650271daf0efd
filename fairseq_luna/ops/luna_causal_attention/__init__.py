"""Luna's causal attention: pack by a positive function, read back by a softmax over the packed slots."""

from .chunked import luna_causal_attention
from .recurrent import LunaCausalState, initial_state, luna_causal_attention_step, state_after

__all__ = [
    "LunaCausalState",
    "initial_state",
    "luna_causal_attention",
    "luna_causal_attention_step",
    "state_after",
]

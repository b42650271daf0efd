"""Luna's causal attention: pack with a positive function of each score, unpack with a softmax over the packed slots."""

from collections.abc import Callable

from torch import Tensor

from . import chunked, triton
from .chunked import luna_causal_attention, luna_causal_attention_from_scores
from .recurrent import initial_state, luna_causal_attention_step, state_after
from .shared import PACK_ACTIVATIONS, pack_scores, pack_weights, scaled

# The training forms by name.
KERNELS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "torch": chunked.luna_causal_attention_from_scores,
    "triton": triton.luna_causal_attention_from_scores,
}

__all__ = [
    "KERNELS",
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

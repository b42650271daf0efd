"""Luna's causal attention: pack with a positive function of each score, unpack with a softmax over the packed slots."""

from collections.abc import Callable

from torch import Tensor

from . import torch_form, triton_form
from .torch_form import (
    PACK_ACTIVATIONS,
    initial_state,
    luna_causal_attention,
    luna_causal_attention_from_scores,
    luna_causal_attention_reference,
    luna_causal_attention_step,
    pack_scores,
    pack_weights,
    scaled,
    state_after,
)

# The training forms by name.
KERNELS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "torch": torch_form.luna_causal_attention_from_scores,
    "triton": triton_form.luna_causal_attention_from_scores,
}

__all__ = [
    "KERNELS",
    "PACK_ACTIVATIONS",
    "initial_state",
    "luna_causal_attention",
    "luna_causal_attention_from_scores",
    "luna_causal_attention_reference",
    "luna_causal_attention_step",
    "pack_scores",
    "pack_weights",
    "scaled",
    "state_after",
]

"""What the self-attentions of an encoder read."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from fairseq_luna.modules.convolved_attention import ConvolvedAttention


@torch.no_grad()
def inputs_of_layers(encoder: Any, tokens: Tensor) -> list[tuple[Any, Tensor]]:
    """The self-attention of each layer of ``encoder`` with its input ``(N, 1, C)`` for ``tokens (1, N)``."""
    attentions = [layer.self_attn for layer in encoder.layers]
    attentions = [each.attention if isinstance(each, ConvolvedAttention) else each for each in attentions]
    seen: list[Tensor] = []
    with ExitStack() as hooks:
        for attention in attentions:
            hook = attention.register_forward_pre_hook(
                lambda _, args, kwargs: seen.append(args[0] if args else kwargs["query"]), with_kwargs=True
            )
            hooks.callback(hook.remove)
        encoder(tokens, torch.tensor([tokens.shape[1]]))
    return list(zip(attentions, seen, strict=True))

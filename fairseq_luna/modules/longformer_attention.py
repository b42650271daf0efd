"""Longformer's attention for encoders."""

from typing import Any

import torch
from torch import Tensor

from ..ops.pattern_attention import Window
from ..ops.softmax_attention import softmax_attention
from .pattern_attention import PatternAttention
from .projection import Projections


def longformer_with_first(*, window: int = 512, dilation: int = 1) -> Window:
    """The pattern of a decoder, :func:`.pattern_projections.longformer`, and the first step."""
    return Window(window, dilation, first=True)


class LongformerAttention(PatternAttention):
    """Attention to a window and to the first step, which sees all with projections of its own (arXiv 2004.05150).

    Args:
        embed_dim, bias, q_noise, qn_block_size, options: those of :class:`.PatternProjections`, without ``pattern``.
        window, dilation: ``window`` steps on each side, of which each is ``dilation`` from the next.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        **options: Any,
    ) -> None:
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        super().__init__(
            pattern=longformer_with_first,
            embed_dim=embed_dim,
            bias=bias,
            q_noise=q_noise,
            qn_block_size=qn_block_size,
            **options,
        )
        self.first_q_proj = new.input()
        self.first_k_proj = new.input()
        self.first_v_proj = new.input()

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        y = super().attend(x, padding_mask)
        is_first = None
        first = x[:1]
        if padding_mask is not None:
            is_first = ~padding_mask & ((~padding_mask).cumsum(1) == 1)
            first = (x * is_first.t()[:, :, None]).sum(0, keepdim=True)
        of_first, _ = softmax_attention(
            self.heads_of(self.first_q_proj, first),
            *(self.heads_of(projection, x) for projection in (self.first_k_proj, self.first_v_proj)),
            padding_mask=padding_mask,
            dropout_p=self.dropout_p(),
        )
        if is_first is None:
            return torch.cat([of_first, y[:, :, 1:]], dim=2)
        return torch.where(is_first[:, None, :, None], of_first, y)

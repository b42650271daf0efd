"""One vector for a text: a mean of its steps with learned weights."""

import torch
from torch import Tensor, nn

from ..ops.dtypes import accumulation_dtype
from ..ops.masked_softmax import masked_softmax
from .argument_checks import validate_padding


class AttentionPooling(nn.Module):
    """Additive attention with one learned query, as in Fastformer's text classifiers (arXiv 2108.09084).

        a = softmax_T( score(tanh(hidden(x))) ),   result = Σ_t a_t x_t

    The authors' score has a bias too, which the softmax cancels.

    Args:
        embed_dim: channels, C.
    """

    def __init__(self, *, embed_dim: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(embed_dim, embed_dim)
        self.score = nn.Linear(embed_dim, 1, bias=False)

    def forward(self, x: Tensor, *, padding_mask: Tensor) -> Tensor:
        """``x (T, B, C)`` and ``padding_mask (B, T)`` bool, True = padding, to ``(B, C)``; the softmax is in fp32."""
        padding = validate_padding(padding_mask, x)
        scores = self.score(torch.tanh(self.hidden(x)))[:, :, 0]
        weights = masked_softmax(scores.to(accumulation_dtype(scores)), padding.existing_mask.t(), dim=0)
        return torch.einsum("tb,tbc->bc", weights.to(x.dtype), x)

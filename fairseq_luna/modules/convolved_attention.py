"""Any self-attention after a short convolution."""

from torch import Tensor, nn

from .generation_state import GenerationState, IncrementalState
from .masks import check_mask
from .short_convolution import ShortConvolution, convolved


class ConvolvedAttention(GenerationState):
    """A self-attention of the sequence after a short convolution (``docs/mathematics.md``).

    Args:
        attention: takes ``x (T, B, C)`` and ``padding_mask (B, T)``, and if causal ``incremental_state``; returns
            ``(T, B, C)``.
        embed_dim: channels, C.
        kernel_size: steps of the convolution, odd.
        causal: the convolution reads no later steps, as the attention does not.

    Raises:
        UsageError: if ``kernel_size`` is even or negative.
    """

    def __init__(self, attention: nn.Module, *, embed_dim: int, kernel_size: int, causal: bool) -> None:
        super().__init__()
        self.attention = attention
        self.convolution = ShortConvolution(embed_dim=embed_dim, kernel_size=kernel_size)
        self.causal = causal

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
    ) -> Tensor:
        """The convolution, then the attention.

        With ``incremental_state``, ``x`` and ``padding_mask`` contain only the new steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: zero for the convolution, not seen by the attention.
            incremental_state: fairseq's state for generation, if causal.

        Returns:
            ``(T, B, C)``.
        """
        check_mask(padding_mask, x)
        if not self.causal:
            return self.attention(self.convolution.centred(x, padding_mask=padding_mask), padding_mask=padding_mask)
        saved = self.load_state(incremental_state)
        x, last_inputs = convolved(x, self.convolution, saved, padding_mask)
        if incremental_state is not None:
            self.save_state(incremental_state, last_inputs)
        return self.attention(x, padding_mask=padding_mask, incremental_state=incremental_state)

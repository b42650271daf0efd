"""A few neighbouring steps, added to each step before an attention that sees no order of its own."""

import torch
from torch import Tensor, nn

from ..ops.short_convolution import short_convolution
from ..usage_error import UsageError


class ShortConvolution(nn.Module):
    """Depthwise convolution over time with a residual: ``docs/fastformer.md`` says what for.

    Args:
        embed_dim: channels, C.
        kernel_size: steps that one output reads, K: odd, so that the middle one can be the output's own.

    Raises:
        UsageError: if ``kernel_size`` is even or below 1.
    """

    def __init__(self, *, embed_dim: int, kernel_size: int) -> None:
        super().__init__()
        check_kernel_size(kernel_size)
        self.kernel_size = kernel_size
        self.weight = nn.Parameter(torch.empty(embed_dim, kernel_size))
        bound = kernel_size**-0.5  # as torch draws its own depthwise convolutions
        nn.init.uniform_(self.weight, -bound, bound)

    def centred(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Add to each step the weighted (K - 1) / 2 steps to its left and right, and itself.

        Args:
            x: ``(T, B, C)``; beyond both ends it is zero.
            padding_mask: ``(B, T)`` bool, True = padding: the step counts as zero.

        Returns:
            ``(T, B, C)``.
        """
        zeros = x.new_zeros(self.kernel_size // 2, *x.shape[1:])
        return x + short_convolution(torch.cat([zeros, without_padding(x, padding_mask), zeros]), self.weight)

    def causal(
        self, x: Tensor, *, padding_mask: Tensor | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Add to each step the weighted K - 1 steps before it, and itself.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step counts as zero.
            past: what the call for the steps before these returned; None: there were none.

        Returns:
            ``(T, B, C)``, and the last K - 1 steps of the input, batch first, ``(B, K - 1, C)``.
        """
        before = self.kernel_size - 1
        past = x.new_zeros(before, *x.shape[1:]) if past is None else past.transpose(0, 1)
        seen = torch.cat([past, without_padding(x, padding_mask)])
        return x + short_convolution(seen, self.weight), seen[len(seen) - before :].transpose(0, 1)


def without_padding(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """``x (T, B, C)`` with zeros where ``padding_mask (B, T)`` says padding."""
    return x if padding_mask is None else x.masked_fill(padding_mask.t()[..., None], 0)


def check_kernel_size(kernel_size: int) -> None:
    """UsageError if no convolution can have that size."""
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise UsageError(
            f"--fastformer-kernel-size {kernel_size}: must be an odd number of words, such as 5; or 0: no convolution"
        )

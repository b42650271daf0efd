"""A few neighbouring steps, added to each step before a self-attention that would not meet them by themselves."""

import torch
from torch import Tensor, nn

from ..ops.short_convolution import short_convolution
from ..usage_error import UsageError
from .generation_state import ModuleState


class ShortConvolution(nn.Module):
    """Depthwise convolution over time with a residual: ``docs/convolution.md`` says what for.

    Args:
        embed_dim: channels, C.
        kernel_size: steps that one output reads, K: odd, so that the middle one can be the output's own.
        flag: what a user sets ``kernel_size`` with.

    Raises:
        UsageError: if ``kernel_size`` is even or below 1.
    """

    def __init__(self, *, embed_dim: int, kernel_size: int, flag: str) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise UsageError(f"{flag} {kernel_size}: must be an odd number of words, such as 5; or 0: no convolution")
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


def convolution_of(kernel_size: int, *, embed_dim: int, flag: str) -> ShortConvolution | None:
    """The convolution that ``flag`` asks for; None if ``kernel_size`` is 0."""
    return ShortConvolution(embed_dim=embed_dim, kernel_size=kernel_size, flag=flag) if kernel_size else None


def convolved(
    x: Tensor, convolution: ShortConvolution | None, saved: ModuleState | None, padding_mask: Tensor | None
) -> tuple[Tensor, ModuleState]:
    """A decoder's ``x (T, B, C)`` after its convolution, if it has one, and what the next step needs of it.

    ``saved`` is what the last step left of the whole attention, None before the first and outside generation.
    """
    if convolution is None:
        return x, {}
    past = None if saved is None else saved["last_inputs"]
    x, last_inputs = convolution.causal(x, padding_mask=padding_mask, past=past)
    return x, {"last_inputs": last_inputs}

"""Short convolution over time before a self-attention that ignores order or pools many steps."""

import torch
from torch import Tensor, nn

from ..ops.short_convolution import short_convolution
from ..usage_error import UsageError
from .generation_state import ModuleState


class ShortConvolution(nn.Module):
    """Depthwise convolution over time with a residual connection (``docs/convolution.md``).

    Args:
        embed_dim: channels, C.
        kernel_size: K, odd, so that the kernel has a middle.
        flag: the command-line flag of ``kernel_size``, for the error message.

    Raises:
        UsageError: if ``kernel_size`` is even or below 1.
    """

    def __init__(self, *, embed_dim: int, kernel_size: int, flag: str) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise UsageError(f"{flag} {kernel_size}: must be an odd number of words, such as 5; or 0: no convolution")
        self.kernel_size = kernel_size
        self.weight = nn.Parameter(torch.empty(embed_dim, kernel_size))
        bound = kernel_size**-0.5  # as in torch.nn.Conv1d with one channel per group
        nn.init.uniform_(self.weight, -bound, bound)

    def centred(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Add to each step the convolution of it and (K - 1) / 2 steps on each side.

        Args:
            x: ``(T, B, C)``, zero-padded at both ends.
            padding_mask: ``(B, T)`` bool, True = padding: the step counts as zero.

        Returns:
            ``(T, B, C)``.
        """
        zeros = x.new_zeros(self.kernel_size // 2, *x.shape[1:])
        return x + short_convolution(torch.cat([zeros, without_padding(x, padding_mask), zeros]), self.weight)

    def causal(
        self, x: Tensor, *, padding_mask: Tensor | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Add to each step the convolution of it and the K - 1 steps before it.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step counts as zero.
            past: the second result of the call for the previous steps; None = no previous steps.

        Returns:
            ``(T, B, C)``, and the last K - 1 inputs, batch first, ``(B, K - 1, C)``.
        """
        before = self.kernel_size - 1
        past = x.new_zeros(before, *x.shape[1:]) if past is None else past.transpose(0, 1)
        seen = torch.cat([past, without_padding(x, padding_mask)])
        return x + short_convolution(seen, self.weight), seen[len(seen) - before :].transpose(0, 1)


def without_padding(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """``x (T, B, C)`` with zeros where ``padding_mask (B, T)`` is True."""
    return x if padding_mask is None else x.masked_fill(padding_mask.t()[..., None], 0)


def convolution_of(kernel_size: int, *, embed_dim: int, flag: str) -> ShortConvolution | None:
    """The convolution, or None if ``kernel_size`` is 0."""
    return ShortConvolution(embed_dim=embed_dim, kernel_size=kernel_size, flag=flag) if kernel_size else None


def convolved(
    x: Tensor, convolution: ShortConvolution | None, saved: ModuleState | None, padding_mask: Tensor | None
) -> tuple[Tensor, ModuleState]:
    """A decoder's ``x (T, B, C)`` after the optional convolution, and the convolution's state for the next step.

    ``saved`` is the attention's state, None before the first step and outside generation.
    """
    if convolution is None:
        return x, {}
    past = None if saved is None else saved["last_inputs"]
    x, last_inputs = convolution.causal(x, padding_mask=padding_mask, past=past)
    return x, {"last_inputs": last_inputs}

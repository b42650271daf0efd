"""Short depthwise convolutions over time, for each channel c with a kernel w of K numbers::

    before a self-attention:   x_t[c] + sum_i w[c, i] x_{t + i - middle}[c]          ShortConvolution
    inside a mixer:            silu( b[c] + sum_i w[c, i] x_{t + i - middle}[c] )    SiluConvolution

The middle is K // 2 in an encoder and K - 1, the newest step, in a decoder. Padded steps are left out, not counted as
0.
Parameters: ``weight`` (w) and, inside a mixer, ``bias`` (b).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.padding import Padding, PaddingLike, reorder_rows
from ..ops.short_convolution import short_convolution
from ..usage_error import ArgumentError

ODD = "must be an odd number of tokens, such as 5; or 0: no convolution"


class DepthwiseConvolution(nn.Module):
    """Depthwise convolution over the real steps; a subclass computes the result from it in :meth:`convolution_output`.

    Args:
        embed_dim: channels, C.
        kernel_size: K.
    """

    def __init__(self, *, embed_dim: int, kernel_size: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.weight = nn.Parameter(torch.empty(embed_dim, kernel_size))
        bound = kernel_size**-0.5  # as in torch.nn.Conv1d with one channel per group
        nn.init.uniform_(self.weight, -bound, bound)

    def convolution_output(self, x: Tensor, y: Tensor, padding: Padding) -> Tensor:
        """The result, from ``x (T, B, C)`` and its convolution ``y`` in the order of :func:`real_steps_first`."""
        raise NotImplementedError

    def centered(self, x: Tensor, *, padding: PaddingLike = None) -> Tensor:
        """Convolve at each step it and (K - 1) / 2 steps on each side; K is odd.

        Args:
            x: ``(T, B, C)``, zero-padded at both ends.
            padding: of the steps, anywhere: neither seen nor counted.

        Returns:
            ``(T, B, C)``; undefined at padding.
        """
        padding = Padding.of(padding)
        zeros = x.new_zeros(self.kernel_size // 2, *x.shape[1:])
        y = short_convolution(torch.cat([zeros, real_steps_first(x, padding), zeros]), self.weight)
        return self.convolution_output(x, y, padding)

    def causal(self, x: Tensor, *, padding: PaddingLike = None, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Convolve at each step it and the K - 1 steps before it.

        Args:
            x: ``(T, B, C)``.
            padding: of the steps, anywhere: neither seen nor counted.
            past: the second result of the call for the previous steps; None = no previous steps.

        Returns:
            ``(T, B, C)``, undefined at padding; and the last K - 1 real inputs, batch first, ``(B, K - 1, C)``.
        """
        padding, before = Padding.of(padding), self.kernel_size - 1
        past = x.new_zeros(before, *x.shape[1:]) if past is None else past.transpose(0, 1)
        seen = torch.cat([past, real_steps_first(x, padding)])
        return self.convolution_output(x, short_convolution(seen, self.weight), padding), last_steps(
            seen, before, padding
        )


class ShortConvolution(DepthwiseConvolution):
    """A convolution with a residual connection (``docs/mathematics.md``). Arguments: :class:`DepthwiseConvolution`.

    Raises:
        UsageError: if ``kernel_size`` is even, so that the kernel has no middle, or below 1.
    """

    def __init__(self, *, embed_dim: int, kernel_size: int) -> None:
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ArgumentError("kernel_size", kernel_size, ODD)
        super().__init__(embed_dim=embed_dim, kernel_size=kernel_size)

    def convolution_output(self, x: Tensor, y: Tensor, padding: Padding) -> Tensor:
        return add_in_order(x, y, padding)


class SiluConvolution(DepthwiseConvolution):
    """``silu(b + the convolution)``, as in Mamba; without ``bias`` there is no b.

    Arguments: :class:`DepthwiseConvolution`.
    """

    def __init__(self, *, embed_dim: int, kernel_size: int, bias: bool = True) -> None:
        super().__init__(embed_dim=embed_dim, kernel_size=kernel_size)
        bound = kernel_size**-0.5
        self.bias = nn.Parameter(torch.empty(embed_dim).uniform_(-bound, bound)) if bias else None

    def convolution_output(self, x: Tensor, y: Tensor, padding: Padding) -> Tensor:
        start = torch.zeros_like(x) if self.bias is None else self.bias.to(x.dtype).expand_as(x)
        # In one layout, whatever the form of the convolution: sums over it round alike, compiled or not.
        return F.silu(add_in_order(start, y, padding)).contiguous()


def real_steps_first(x: Tensor, padding: Padding) -> Tensor:
    """``x (T, B, C)`` with the real steps first and zeros after them."""
    if padding.mask is None:
        return x
    zeroed = x.masked_fill(padding.mask.t()[..., None], 0).flatten(0, 1)
    return reorder_rows(zeroed, padding.rows_real_first, padding.rows_in_original_order).view(x.shape)


def add_in_order(x: Tensor, y: Tensor, padding: Padding) -> Tensor:
    """``x`` plus ``y``, both ``(T, B, C)``, the second in the order of :func:`real_steps_first`."""
    if padding.mask is None:
        return x + y
    placed = reorder_rows(y.flatten(0, 1), padding.rows_in_original_order, padding.rows_real_first)
    return x + placed.view(x.shape).to(x.dtype)


def last_steps(seen: Tensor, count: int, padding: Padding) -> Tensor:
    """The last ``count`` steps before the padding of ``seen (count + T, B, C)``: ``(B, count, C)``."""
    if padding.mask is None:
        return seen[len(seen) - count :].transpose(0, 1)
    place = padding.lengths[:, None] + torch.arange(count, device=seen.device)
    return seen.transpose(0, 1).gather(1, place[..., None].expand(-1, -1, seen.shape[2]))


def convolution_of(kernel_size: int, *, embed_dim: int) -> ShortConvolution | None:
    """The convolution, or None if ``kernel_size`` is 0."""
    return ShortConvolution(embed_dim=embed_dim, kernel_size=kernel_size) if kernel_size else None

"""What padding does, in every form but the specification."""

from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def without_padding(f: Tensor, b: Tensor, padding: PaddingLike) -> tuple[Tensor, Tensor]:
    """``f`` and ``b (T, B, C)`` in the dtype of the states, 1 and 0 at padding."""
    padding = Padding.of(padding)
    dtype = accumulation_dtype(b)
    f, b = f.to(dtype), b.to(dtype)
    if padding.mask is None:
        return f, b
    padded = padding.mask.t()[..., None]
    return f.masked_fill(padded, 1), b.masked_fill(padded, 0)

"""In which precision running sums are kept."""

import torch
from torch import Tensor

HALF_DTYPES = (torch.float16, torch.bfloat16)


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """fp32 for a half precision ``x``, else the dtype of ``x`` itself."""
    return torch.float32 if x.dtype in HALF_DTYPES else x.dtype

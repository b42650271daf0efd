"""Random directions for feature maps."""

import torch
from torch import Tensor


def orthogonal_directions(count: int, size: int, *, generator: torch.Generator) -> Tensor:
    """``count`` normally distributed vectors, orthogonal within each group of ``size``: ``(count, size)``, fp32.

    Orthogonality lowers the variance of random features (arXiv 2009.14794, section 2.4). Each vector alone is
    distributed as ``torch.randn``: uniform direction, and the norm of ``size`` normal numbers.

    Args:
        count: the number of vectors.
        size: their length.
        generator: a generator on the CPU, so that every device gets the same numbers.
    """
    groups = -(-count // size)
    device, dtype = generator.device, torch.float64
    normal = torch.randn(groups, size, size, generator=generator, device=device, dtype=dtype)
    q, r = torch.linalg.qr(normal)
    # LAPACK chooses the signs of R's diagonal, so that without this Q is not uniform among the rotations, and the
    # features are biased.
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    norms = torch.randn(count, size, generator=generator, device=device, dtype=dtype).norm(dim=1, keepdim=True)
    return (q.reshape(-1, size)[:count] * norms).float()

"""Measures of attention matrices."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

# What is printed, and its unit.
COLUMNS = {
    "rank": "rank",
    "effective_rank": "effective rank",
    "entropy": "entropy / log N",
    "distance": "distance from the mean",
}


def measures(matrices: Tensor) -> Mapping[str, float]:
    """The measures of ``matrices (H, N, N)``, averaged over the heads.

    - rank: singular values above N times the precision of fp32 times the largest.
    - effective rank: exp of the entropy of the singular values divided by their sum (Roy and Vetterli, 2007).
    - entropy of a row, divided by that of the mean, log N; of the weights' magnitudes if some are negative.
    - distance: the Frobenius norm of A - 11^T / N. The mean has 0, the identity sqrt(N - 1).
    """
    steps = matrices.shape[-1]
    values = torch.linalg.svdvals(matrices)
    rank = (values > steps * torch.finfo(torch.float32).eps * values[:, :1]).sum(-1).to(values)
    effective = torch.special.entr(values / values.sum(-1, keepdim=True)).sum(-1).exp()
    shares = matrices.abs() / matrices.abs().sum(-1, keepdim=True)
    found = {
        "rank": rank,
        "effective_rank": effective,
        "entropy": torch.special.entr(shares).sum(-1).mean(-1) / math.log(max(steps, 2)),
        "distance": (matrices - 1 / steps).norm(dim=(1, 2)),
    }
    return {name: value.mean().item() for name, value in found.items()}

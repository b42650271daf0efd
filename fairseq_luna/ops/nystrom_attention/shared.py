"""The iteration for the pseudo-inverse."""

import torch
from torch import Tensor


def pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """An approximation of the Moore-Penrose inverse of ``matrix (..., L, L)`` (arXiv 2102.03902, equation 11).

    It starts from the transpose over the product of the largest sums of a row and of a column. That of a row is 1,
    because the rows are a softmax. Six steps, the paper's number, may end far from the inverse.
    """
    one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = matrix.mT / matrix.sum(-2, keepdim=True).amax(-1, keepdim=True)
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = inverse @ (13 * one - product @ (15 * one - product @ (7 * one - product))) / 4
    return inverse

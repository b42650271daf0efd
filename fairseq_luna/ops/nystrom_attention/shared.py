"""The iteration for the pseudo-inverse."""

import torch
from torch import Tensor


def pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """An approximation of the Moore-Penrose inverse of ``matrix (..., L, L)`` (arXiv 2102.03902, equation 11).

    It starts from the transpose over the product of the largest sums of a row and of a column. That of a row is 1,
    because the rows are a softmax. Six steps, the paper's number, may end far from the inverse.
    """
    flat = matrix.flatten(0, -3)
    negative = -flat
    one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = flat.mT / flat.sum(-2, keepdim=True).amax(-1, keepdim=True)
    for _ in range(iterations):
        # Z (13 - P (15 - P (7 - P))) / 4 with P = A Z, by products that add.
        product = torch.bmm(negative, inverse)
        polynomial = torch.add(7 / 4 * one, product, alpha=1 / 4)
        polynomial = torch.baddbmm(15 / 4 * one, product, polynomial)
        polynomial = torch.baddbmm(13 / 4 * one, product, polynomial)
        inverse = torch.bmm(inverse, polynomial)
    return inverse.view_as(matrix)

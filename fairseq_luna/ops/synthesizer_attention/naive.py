"""Specification: softmax over scores that are given for pairs of positions."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..real_steps import positions


def synthesizer_attention(
    scores: Tensor,
    v: Tensor,
    *,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention with given scores (arXiv 2005.00743, equation 2).

        y_i = sum_j w_ij v_j,    w_i = softmax_j( R[p_i, p_j] )

    ``p_i`` is the position of step i among the real steps of its sentence.

    Args:
        scores: R, ``(B, H, T, T)``, or ``(1, H, T, T)`` if all sentences have the same.
        v: ``(B, H, T, D)``.
        padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: the softmax is over j <= i.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, zero at padding; softmax and sums are in fp32 for half precision.
    """
    batch, heads, steps, _ = v.shape
    dtype = accumulation_dtype(v)
    padded = v.new_zeros(batch, steps, dtype=torch.bool) if padding_mask is None else padding_mask
    p = positions(padded)
    rows = p[:, None, :, None].expand(-1, heads, -1, steps)
    of_steps = scores.expand(batch, -1, -1, -1).gather(2, rows).gather(3, rows.mT)
    hidden = padded[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones(steps, steps, dtype=torch.bool, device=v.device).triu(1)
    hidden = hidden & ~padded[:, None, :, None]  # what padding sees is not read, but a softmax over nothing is NaN
    weights = of_steps.to(dtype).masked_fill(hidden, -torch.inf).softmax(-1)
    y = F.dropout(weights, dropout_p) @ v.to(dtype)
    return y.masked_fill(padded[:, None, :, None], 0).to(v.dtype)

"""Strided attention: one product within blocks, and one with the last steps of all blocks."""

import torch
from torch import Tensor

from ..chunks import in_chunks
from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from ..padding import Padding, computed_once
from .shared import Strided


def strided_attention(
    q: Tensor, k: Tensor, v: Tensor, pattern: Strided, *, padding: Padding, causal: bool, dropout_p: float
) -> Tensor:
    """Attention to the own block and the last steps of all, with ``T (stride + T summary / stride)`` scores.

    For sequences whose real steps come first.
    """
    steps, dtype = q.shape[2], accumulation_dtype(q)
    hidden = _hidden(padding, pattern, steps, causal, q.device)
    with full_precision(q):
        scale = q.shape[-1] ** -0.5
        q_blocks, k_blocks, v_blocks = (in_chunks(x.to(dtype), pattern.stride, dim=-2) for x in (q, k, v))
        summaries = [x[:, :, :, -pattern.summary :].flatten(2, 3)[:, :, None] for x in (k_blocks, v_blocks)]
        q_blocks = q_blocks * scale
        scores = torch.cat([q_blocks @ k_blocks.mT, q_blocks @ summaries[0].mT], dim=-1)
        weights = drop(masked_softmax(scores, hidden, dim=-1), dropout_p)
        of_block, of_summaries = weights.split([pattern.stride, weights.shape[-1] - pattern.stride], dim=-1)
        y = of_block @ v_blocks + of_summaries @ summaries[1]
    return y.flatten(2, 3)[:, :, :steps].to(q.dtype)


@computed_once
def _hidden(padding: Padding, pattern: Strided, steps: int, causal: bool, device: torch.device) -> Tensor:
    """What is not seen of the own block and of the last steps of all: ``(B or 1, 1, M, stride, stride + M summary)``.

    The last steps of the own block are seen there, and not a second time.
    """
    i = torch.arange(steps + -steps % pattern.stride, device=device).view(-1, pattern.stride)
    of_block, of_summaries = i[:, None], i[:, -pattern.summary :].flatten()
    j = torch.cat([of_block, of_summaries.expand(len(i), 1, -1)], dim=-1)  # (M, 1, stride + M summary)
    i = i[:, :, None]
    again = torch.arange(j.shape[-1], device=device) >= pattern.stride
    hidden = again & (i // pattern.stride == j // pattern.stride)
    if causal:
        hidden = hidden | (j > i)
    ends = torch.full((1,), steps, device=device) if padding.mask is None else padding.lengths
    return hidden[None, None] | (j >= ends[:, None, None, None, None])

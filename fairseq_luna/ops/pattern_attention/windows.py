"""Windows: chunks of queries with the keys of their own and the neighbouring chunks."""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..padding import Padding, additive_mask, computed_once
from ..softmax_attention import scaled_dot_product_attention
from .shared import Window

# Products of shorter chunks are too small to be fast.
SHORTEST_CHUNK = 16


class Chunks(NamedTuple):
    """A sequence cut into G classes of steps whose distances are multiples of G, and each class into M chunks."""

    classes: int  # G, the dilation
    number: int  # M
    size: int  # queries of a chunk
    before: int  # keys before its queries
    after: int  # keys after its queries

    @property
    def places(self) -> int:
        """Steps of the sequence with what fills up the last chunks."""
        return self.classes * self.number * self.size


def chunks_of(pattern: Window, steps: int, causal: bool) -> Chunks:
    """The chunks for a sequence of ``steps``; one, if several would have about as many scores."""
    of_class = max(1, -(-steps // pattern.dilation))
    size = max(pattern.window, SHORTEST_CHUNK)
    if of_class <= 3 * size:
        return Chunks(pattern.dilation, 1, of_class, 0, 0)
    return Chunks(pattern.dilation, -(-of_class // size), size, pattern.window, 0 if causal else pattern.window)


def window_attention(
    q: Tensor, k: Tensor, v: Tensor, pattern: Window, *, padding: Padding, causal: bool, dropout_p: float
) -> Tensor:
    """Attention to a window in O(T window), for sequences whose real steps come first."""
    batch, heads, steps, size = q.shape
    chunks = chunks_of(pattern, steps, causal)
    if not steps:
        pattern = replace(pattern, first=False)  # there is none
    mask = _window_mask(padding, replace(pattern, spans=None), chunks, steps, causal, q.dtype, q.device)
    if pattern.spans is not None:
        key = torch.arange(-chunks.before, chunks.size + chunks.after, device=q.device)
        distance = (torch.arange(chunks.size, device=q.device)[:, None] - key).abs() * chunks.classes
        mask = mask + pattern.scores(distance).to(q.dtype)
    y = scaled_dot_product_attention(
        _chunked(q, chunks),
        *(_keys_of_chunks(x, chunks, first=pattern.first) for x in (k, v)),
        attn_mask=mask.expand(batch, -1, -1, -1, -1).flatten(0, 1),
        dropout_p=dropout_p,
    )
    y = y.view(batch, chunks.classes, chunks.number, heads, chunks.size, size)
    return y.permute(0, 3, 2, 4, 1, 5).reshape(batch, heads, chunks.places, size)[:, :, :steps]


def _chunked(x: Tensor, chunks: Chunks, before: int = 0, after: int = 0) -> Tensor:
    """``(B, H, T, D)`` to ``(B G M, H, N, D)``: the N steps of each chunk and of its class before and after it."""
    x = F.pad(x, (0, 0, before * chunks.classes, chunks.places - x.shape[2] + after * chunks.classes))
    by_class = x.unflatten(2, (x.shape[2] // chunks.classes, chunks.classes))
    by_chunk = by_class.unfold(2, before + chunks.size + after, chunks.size)  # (B, H, M, G, D, N)
    return by_chunk.permute(0, 3, 2, 1, 5, 4).flatten(0, 2)


def _keys_of_chunks(x: Tensor, chunks: Chunks, *, first: bool) -> Tensor:
    """The keys or values ``(B, H, T, D)`` that each chunk sees, and behind them if asked the ``first``."""
    of_chunks = _chunked(x, chunks, chunks.before, chunks.after)
    if not first:
        return of_chunks
    of_all = x[:, None, :, :1].expand(-1, chunks.classes * chunks.number, -1, -1, -1).flatten(0, 1)
    return torch.cat([of_chunks, of_all], dim=2)


@computed_once
def _window_mask(
    padding: Padding,
    pattern: Window,
    chunks: Chunks,
    steps: int,
    causal: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """What is added to the scores: ``(B or 1, G M, 1, size, N)``, the same object for all layers of a batch."""
    classes = torch.arange(chunks.classes, device=device)[:, None, None]
    starts = torch.arange(chunks.number, device=device)[:, None] * chunks.size
    query = torch.arange(chunks.size, device=device)
    key = torch.arange(-chunks.before, chunks.size + chunks.after, device=device)
    i = ((starts + query) * chunks.classes + classes)[..., :, None]  # (G, M, size, 1)
    j = ((starts + key) * chunks.classes + classes)[..., None, :]  # (G, M, 1, N)
    ends = torch.full((1,), steps, device=device) if padding.mask is None else padding.lengths
    seen = pattern.sees(i, j, ends) & (j >= 0) & (j < ends[:, None, None, None, None])
    if causal:
        seen = seen & (j <= i)
    seen = seen | (i == j)  # places after the last real step see something too: a softmax over nothing is NaN
    if pattern.first:
        is_elsewhere = (classes > 0) | (starts > chunks.before)  # not among the keys of the chunk
        column = is_elsewhere.expand(chunks.classes, chunks.number, chunks.size)[..., None]
        seen = torch.cat([seen, column.expand(seen.shape[0], -1, -1, -1, -1)], dim=-1)
    return additive_mask(~seen, dtype).flatten(1, 2)[:, :, None]

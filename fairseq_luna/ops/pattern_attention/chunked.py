"""Training form: chunks of queries, each with the keys that it can see; time and memory follow the pattern."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..once_per_batch import once_per_batch
from ..softmax_attention import additive_mask, scaled_dot_product_attention
from .fused import topk_attention
from .shared import Pattern, TopK, Window, real_first, reordered

# Products of shorter chunks are too small to be fast.
SHORTEST_CHUNK = 16


def pattern_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention of each step to those of its pattern; specified by :func:`.naive.pattern_attention`.

    Args:
        q, k, v: ``(B, H, T, D)``.
        pattern: of positions among the real steps.
        padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: without the later steps.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding.
    """
    if isinstance(pattern, TopK):
        y, _ = topk_attention(
            q, k, v, count=pattern.count, padding_mask=padding_mask, causal=causal, dropout_p=dropout_p
        )
        return y if padding_mask is None else y.masked_fill(padding_mask[:, None, :, None], 0)
    assert isinstance(pattern, Window)
    if padding_mask is None:
        return _windows(q, k, v, pattern, None, causal, dropout_p)
    order = real_first(padding_mask)
    q, k, v = (reordered(x, order.steps) for x in (q, k, v))
    y = _windows(q, k, v, pattern, order.lengths, causal, dropout_p)
    return reordered(y, order.places).masked_fill(padding_mask[:, None, :, None], 0)


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
    of_class = -(-steps // pattern.dilation)
    size = max(pattern.window, SHORTEST_CHUNK)
    if of_class <= 3 * size:
        return Chunks(pattern.dilation, 1, of_class, 0, 0)
    return Chunks(pattern.dilation, -(-of_class // size), size, pattern.window, 0 if causal else pattern.window)


def _windows(
    q: Tensor, k: Tensor, v: Tensor, pattern: Window, lengths: Tensor | None, causal: bool, dropout_p: float
) -> Tensor:
    """Attention to a window, for sequences whose real steps come first."""
    batch, heads, steps, size = q.shape
    chunks = chunks_of(pattern, steps, causal)
    mask = _window_mask(pattern, chunks, steps, lengths, causal, q.dtype, q.device)
    y = scaled_dot_product_attention(
        _chunked(q, chunks),
        _chunked(k, chunks, chunks.before, chunks.after),
        _chunked(v, chunks, chunks.before, chunks.after),
        attn_mask=mask.expand(batch, -1, -1, -1, -1).flatten(0, 1),
        dropout_p=dropout_p,
    )
    y = y.view(batch, chunks.classes, chunks.number, heads, chunks.size, size)
    return y.permute(0, 3, 2, 4, 1, 5).reshape(batch, heads, chunks.places, size)[:, :, :steps]


def _chunked(x: Tensor, chunks: Chunks, before: int = 0, after: int = 0) -> Tensor:
    """``(B, H, T, D)`` to ``(B G M, H, N, D)``: the N steps of each chunk and of its class before and after it."""
    x = F.pad(x, (0, 0, before * chunks.classes, chunks.places - x.shape[2] + after * chunks.classes))
    by_class = x.unflatten(2, (-1, chunks.classes))
    by_chunk = by_class.unfold(2, before + chunks.size + after, chunks.size)  # (B, H, M, G, D, N)
    return by_chunk.permute(0, 3, 2, 1, 5, 4).flatten(0, 2)


@once_per_batch
def _window_mask(
    pattern: Window,
    chunks: Chunks,
    steps: int,
    lengths: Tensor | None,
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
    ends = torch.full((1,), steps, device=device) if lengths is None else lengths
    seen = pattern.sees(i, j) & (j >= 0) & (j < ends[:, None, None, None, None])
    if causal:
        seen = seen & (j <= i)
    seen = seen | (i == j)  # places after the last real step see something too: a softmax over nothing is NaN
    return additive_mask(~seen, like=torch.empty(0, dtype=dtype, device=device)).flatten(1, 2)[:, :, None]

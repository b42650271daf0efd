"""Attention to the steps of a pattern: the reference, and training forms for windows, strides and blocks.

The training forms compute only the products that the pattern needs, in the time and memory that its paper claims.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..chunks import split_into_chunks
from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from ..padding import Padding, PaddingLike, additive_mask, computed_once
from ..softmax_attention import scaled_dot_product_attention, softmax_attention
from ..symbolic_sizes import missing_steps
from .patterns import NONE, Pattern, RandomBlocks, Strided, TopK, Window
from .topk_attention import masked_attention_reference, topk_attention


def pattern_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """``y_i = softmax(q_i k_j / sqrt(D)) v_j`` over the real steps j that the pattern of step i has.

    With spans the weights are ``m(|i - j|) exp(q_i k_j / sqrt(D))``, divided by their sum.

    Args:
        q, k, v: ``(B, H, T, D)``.
        pattern: of positions among the real steps.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: without the later steps; not for :class:`.RandomBlocks`.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. The softmax is in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    padded = Padding(padding_mask).with_mask(q.shape[0], q.shape[2], q.device).existing_mask
    position = (~padded).cumsum(1) - 1
    i, j = position[:, None, :, None], position[:, None, None, :]
    hidden = ~pattern.sees(i, j, (~padded).sum(1)) | padded[:, None, :, None] | padded[:, None, None, :]
    if causal:
        hidden = hidden | (j > i)
    count = pattern.count if isinstance(pattern, TopK) else None
    m = pattern.factors((i - j).abs()) if isinstance(pattern, Window) and pattern.spans is not None else None
    return masked_attention_reference(q, k, v, hidden, count, dropout_p, m)[0].to(q.dtype)


def pattern_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`pattern_attention_reference`; the pattern decides which products are computed."""
    padding = Padding.of(padding)
    if isinstance(pattern, TopK):
        y, _ = topk_attention(q, k, v, count=pattern.count, padding=padding, causal=causal, dropout_p=dropout_p)
        return padding.zero(y)
    q, k, v = (padding.put_real_first(x) for x in (q, k, v))
    if isinstance(pattern, RandomBlocks):
        assert not causal, "a block sees later ones"
        lengths = None if padding.mask is None else padding.lengths
        y = block_sparse_attention(q, k, v, pattern, lengths=lengths, dropout_p=dropout_p)
    elif isinstance(pattern, Strided):
        y = strided_attention(q, k, v, pattern, padding=padding, causal=causal, dropout_p=dropout_p)
    else:
        assert isinstance(pattern, Window)
        y = window_attention(q, k, v, pattern, padding=padding, causal=causal, dropout_p=dropout_p)
    return padding.restore_places(y)


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
        """The number of steps, including the steps that fill up the last chunks."""
        return self.classes * self.number * self.size


def chunks_of(pattern: Window, steps: int, causal: bool) -> Chunks:
    """The chunks for a sequence of ``steps``; a single chunk if several would have about as many scores."""
    class_steps = max(1, -(-steps // pattern.dilation))
    size = max(pattern.window, SHORTEST_CHUNK)
    if class_steps <= 3 * size:
        return Chunks(pattern.dilation, 1, class_steps, 0, 0)
    return Chunks(pattern.dilation, -(-class_steps // size), size, pattern.window, 0 if causal else pattern.window)


def window_attention(
    q: Tensor, k: Tensor, v: Tensor, pattern: Window, *, padding: Padding, causal: bool, dropout_p: float
) -> Tensor:
    """Attention to a window in O(T window), for sequences whose real steps come first.

    Chunks of queries see the keys of their own and of the neighboring chunks.
    """
    batch, heads, steps, size = q.shape
    chunks = chunks_of(pattern, steps, causal)
    if steps == 0:
        pattern = replace(pattern, first=False)  # there is no first step
    places = Window(pattern.window, pattern.dilation, pattern.first)  # whatever the spans are, which need a gradient
    mask = _window_mask(padding, places, chunks, steps, causal, q.dtype, q.device)
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
    if torch.compiler.is_compiling() and chunks.number == 1:
        # Its size is the length of the sequence, which unfold would make a constant of the graph.
        by_chunk = by_class.permute(0, 1, 3, 4, 2)[:, :, None]
    else:
        by_chunk = by_class.unfold(2, before + chunks.size + after, chunks.size)  # (B, H, M, G, D, N)
    return by_chunk.permute(0, 3, 2, 1, 5, 4).flatten(0, 2)


def _keys_of_chunks(x: Tensor, chunks: Chunks, *, first: bool) -> Tensor:
    """The keys or values ``(B, H, T, D)`` that each chunk sees, and after them, if requested, the ``first``."""
    chunk_keys = _chunked(x, chunks, chunks.before, chunks.after)
    if not first:
        return chunk_keys
    first_keys = x[:, None, :, :1].expand(-1, chunks.classes * chunks.number, -1, -1, -1).flatten(0, 1)
    return torch.cat([chunk_keys, first_keys], dim=2)


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
    """The mask to add to the scores, ``(B or 1, G M, 1, size, N)``: the same object for all layers of a batch."""
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


def strided_attention(
    q: Tensor, k: Tensor, v: Tensor, pattern: Strided, *, padding: Padding, causal: bool, dropout_p: float
) -> Tensor:
    """Attention to a step's own block and the last steps of all: ``T (stride + T summary / stride)`` scores.

    For sequences whose real steps come first: one product within blocks, and one with the last steps of all blocks.
    """
    steps, dtype = q.shape[2], accumulation_dtype(q)
    hidden = _strided_mask(padding, pattern, steps, causal, q.device)
    with full_precision(q):
        scale = q.shape[-1] ** -0.5
        q_blocks, k_blocks, v_blocks = (split_into_chunks(x.to(dtype), pattern.stride, dim=-2) for x in (q, k, v))
        summaries = [x[:, :, :, -pattern.summary :].flatten(2, 3)[:, :, None] for x in (k_blocks, v_blocks)]
        q_blocks = q_blocks * scale
        scores = torch.cat([q_blocks @ k_blocks.mT, q_blocks @ summaries[0].mT], dim=-1)
        weights = drop(masked_softmax(scores, hidden, dim=-1), dropout_p)
        own_block, from_summaries = weights.split([pattern.stride, weights.shape[-1] - pattern.stride], dim=-1)
        y = own_block @ v_blocks + from_summaries @ summaries[1]
    return y.flatten(2, 3)[:, :, :steps].to(q.dtype)


@computed_once
def _strided_mask(padding: Padding, pattern: Strided, steps: int, causal: bool, device: torch.device) -> Tensor:
    """The steps of a step's own block, and last steps of all blocks, that are not seen.

    ``(B or 1, 1, M, stride, stride + M summary)``. The last steps of that block are seen there, and not a second
    time.
    """
    i = torch.arange(steps + missing_steps(steps, pattern.stride), device=device).view(-1, pattern.stride)
    own_block, from_summaries = i[:, None], i[:, -pattern.summary :].flatten()
    j = torch.cat([own_block, from_summaries.expand(len(i), 1, -1)], dim=-1)  # (M, 1, stride + M summary)
    i = i[:, :, None]
    is_duplicate = torch.arange(j.shape[-1], device=device) >= pattern.stride
    hidden = is_duplicate & (i // pattern.stride == j // pattern.stride)
    if causal:
        hidden = hidden | (j > i)
    ends = torch.full((1,), steps, device=device) if padding.mask is None else padding.lengths
    return hidden[None, None] | (j >= ends[:, None, None, None, None])


def block_sparse_attention(
    q: Tensor, k: Tensor, v: Tensor, pattern: RandomBlocks, *, lengths: Tensor | None, dropout_p: float
) -> Tensor:
    """BigBird: attention to neighbors, the first, the last and random blocks, in O(T block_size).

    For sequences whose real steps come first: ``lengths (B,)``, None = all.
    """
    batch, heads, steps, size = q.shape
    number = -(-steps // pattern.block_size)
    if number <= 4 + pattern.random:  # then all blocks are seen
        padded = None if lengths is None else torch.arange(steps, device=q.device) >= lengths[:, None]
        return softmax_attention(q, k, v, padding=padded, dropout_p=dropout_p)[0]
    if lengths is None:
        lengths = torch.full((batch,), steps, device=q.device)
    counts = pattern.counts(lengths)
    seen = pattern.seen_blocks(counts, number)
    q_blocks, k_blocks, v_blocks = (split_into_chunks(x, pattern.block_size, dim=-2) for x in (q, k, v))
    y = scaled_dot_product_attention(
        q_blocks.flatten(1, 2),
        *(_seen_by_blocks(x, seen, counts).flatten(1, 2) for x in (k_blocks, v_blocks)),
        attn_mask=_block_sparse_mask(seen, lengths, counts, pattern, q.dtype).flatten(1, 2),
        dropout_p=dropout_p,
    ).view_as(q_blocks)

    ends = torch.cat([q_blocks[:, :, :1], _last_block(q_blocks, counts)], dim=2).flatten(2, 3)
    places = torch.arange(number * pattern.block_size, device=q.device)
    y_of_ends = scaled_dot_product_attention(
        ends,
        *(x.flatten(2, 3) for x in (k_blocks, v_blocks)),
        attn_mask=additive_mask((places >= lengths.clamp(min=1)[:, None])[:, None, None], q.dtype),
        dropout_p=dropout_p,
    ).view(batch, heads, 2, pattern.block_size, size)
    block = torch.arange(number, device=q.device)[:, None, None]
    y = torch.where(block == counts[:, None, None, None, None] - 1, y_of_ends[:, :, 1:], y)
    y = torch.where(block == 0, y_of_ends[:, :, :1], y)
    return y.flatten(2, 3)[:, :, :steps]


def _last_block(x: Tensor, counts: Tensor) -> Tensor:
    """The last block of each sentence, ``(B, H, 1, S, D)``, for ``x (B, H, M, S, D)``."""
    return x.gather(2, (counts - 1)[:, None, None, None, None].expand(-1, x.shape[1], 1, *x.shape[3:]))


def _seen_by_blocks(x: Tensor, seen: Tensor, counts: Tensor) -> Tensor:
    """The keys or values ``(B, H, M, S, D)`` of the blocks ``seen (B, H, M, W)``: ``(B, H, M, W S, D)``."""
    number, none = x.shape[2], (0, 0, 0, 0)
    around = F.pad(x, (*none, 1, 1))
    random = seen[..., 5:].where(seen[..., 5:] != NONE, 0)
    rows = random.flatten(2) + torch.arange(0, x.shape[:3].numel(), number, device=x.device).view(*x.shape[:2], 1)
    drawn = x.flatten(3).flatten(0, 2).index_select(0, rows.flatten())
    return torch.cat(
        [
            *(around[:, :, shift : shift + number] for shift in range(3)),
            x[:, :, :1].expand_as(x),
            _last_block(x, counts).expand_as(x),
            drawn.view(*x.shape[:3], -1, x.shape[4]),
        ],
        dim=3,
    )


def _block_sparse_mask(
    seen: Tensor, lengths: Tensor, counts: Tensor, pattern: RandomBlocks, dtype: torch.dtype
) -> Tensor:
    """The mask to add to the scores, ``(B, H, M, 1, W S)``; the same for all queries of a block."""
    place = torch.arange(pattern.block_size, device=seen.device)
    j = seen[..., None] * pattern.block_size + place
    hidden = (j >= lengths[:, None, None, None, None]).flatten(3)
    # After the last block of a sentence nothing is masked, because a softmax over nothing is NaN.
    block = torch.arange(seen.shape[2], device=seen.device)[:, None]
    return additive_mask(hidden & (block < counts[:, None, None, None]), dtype)[:, :, :, None]

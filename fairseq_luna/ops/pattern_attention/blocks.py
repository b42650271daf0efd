"""BigBird: each block of queries with the blocks of keys that it sees, side by side."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..chunks import in_chunks
from ..padding import additive_mask
from ..softmax_attention import scaled_dot_product_attention, softmax_attention
from .shared import NONE, RandomBlocks


def block_sparse_attention(
    q: Tensor, k: Tensor, v: Tensor, pattern: RandomBlocks, *, lengths: Tensor | None, dropout_p: float
) -> Tensor:
    """Attention to neighbours, the first, the last and random blocks, in O(T block_size).

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
    q_blocks, k_blocks, v_blocks = (in_chunks(x, pattern.block_size, dim=-2) for x in (q, k, v))
    y = scaled_dot_product_attention(
        q_blocks.flatten(1, 2),
        *(_seen(x, seen, counts).flatten(1, 2) for x in (k_blocks, v_blocks)),
        attn_mask=_mask(seen, lengths, counts, pattern, q.dtype).flatten(1, 2),
        dropout_p=dropout_p,
    ).view_as(q_blocks)

    ends = torch.cat([q_blocks[:, :, :1], _last(q_blocks, counts)], dim=2).flatten(2, 3)
    places = torch.arange(number * pattern.block_size, device=q.device)
    of_ends = scaled_dot_product_attention(
        ends,
        *(x.flatten(2, 3) for x in (k_blocks, v_blocks)),
        attn_mask=additive_mask((places >= lengths.clamp(min=1)[:, None])[:, None, None], q.dtype),
        dropout_p=dropout_p,
    ).view(batch, heads, 2, pattern.block_size, size)
    block = torch.arange(number, device=q.device)[:, None, None]
    y = torch.where(block == counts[:, None, None, None, None] - 1, of_ends[:, :, 1:], y)
    y = torch.where(block == 0, of_ends[:, :, :1], y)
    return y.flatten(2, 3)[:, :, :steps]


def _last(x: Tensor, counts: Tensor) -> Tensor:
    """The last block of each sentence, ``(B, H, 1, S, D)`` of ``x (B, H, M, S, D)``."""
    return x.gather(2, (counts - 1)[:, None, None, None, None].expand(-1, x.shape[1], 1, *x.shape[3:]))


def _seen(x: Tensor, seen: Tensor, counts: Tensor) -> Tensor:
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
            _last(x, counts).expand_as(x),
            drawn.view(*x.shape[:3], -1, x.shape[4]),
        ],
        dim=3,
    )


def _mask(seen: Tensor, lengths: Tensor, counts: Tensor, pattern: RandomBlocks, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: ``(B, H, M, 1, W S)``; the same for all queries of a block."""
    place = torch.arange(pattern.block_size, device=seen.device)
    j = seen[..., None] * pattern.block_size + place
    hidden = (j >= lengths[:, None, None, None, None]).flatten(3)
    # Behind the last block of a sentence nothing is masked, because a softmax over nothing is NaN.
    block = torch.arange(seen.shape[2], device=seen.device)[:, None]
    return additive_mask(hidden & (block < counts[:, None, None, None]), dtype)[:, :, :, None]

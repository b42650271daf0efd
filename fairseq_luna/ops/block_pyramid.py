"""One layer of the block pyramid: attention inside blocks, and a shorter sequence of block means."""

from torch import Tensor

from .block_partition import (
    Blocks,
    blocks_of,
    empty_blocks,
    empty_places,
    equal_ends,
    from_blocks,
    reduce_blocks,
    to_blocks,
)
from .softmax_attention import softmax_attention


def cut_to_shrink(padding_mask: Tensor, block_size: int) -> Blocks:
    """Cut n real steps into ``ceil(n / block_size)`` equal blocks of at most ``block_size`` steps.

    With equal blocks no short last block weighs as much as a full one in the means of the next layers.

    Args:
        padding_mask: ``(B, T)`` bool, True = padding, anywhere.
        block_size: 1 or more.
    """
    steps = padding_mask.shape[1]
    lengths = (~padding_mask).sum(1)
    counts = ((lengths + block_size - 1) // block_size).clamp(min=1)
    ends = equal_ends(lengths, counts, max(1, -(-steps // block_size)))
    return blocks_of(ends, padding_mask, min(block_size, steps))


def attention_within(q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, *, dropout_p: float = 0.0) -> Tensor:
    """Softmax attention of every step to the steps of its own block.

    Args:
        q, k, v: ``(B, H, T, D)``.
        blocks: the block of each step; padding is in none.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding.
    """
    q, k, v = (to_blocks(x, blocks) for x in (q, k, v))
    y, _ = softmax_attention(q, k, v, padding_mask=empty_places(blocks).flatten(0, 1), dropout_p=dropout_p)
    return from_blocks(y, blocks)


def block_means(x: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """The mean of each block.

    Args:
        x: ``(T, B, C)``.
        blocks: at most M per sentence; padding is in none.

    Returns:
        ``(M, B, C)`` in the dtype of ``x``, summed in fp32 if it is half precision, and the padding mask ``(B, M)``,
        True = no such block in this sentence. A sentence without real steps has one block, which is zero.
    """
    means = reduce_blocks(to_blocks(x.transpose(0, 1)[:, None], blocks), blocks)
    return means.view(*blocks.sizes.shape, -1).transpose(0, 1), empty_blocks(blocks)

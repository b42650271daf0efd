"""One layer of the pyramid: attention inside the blocks of a sequence, and a shorter sequence of their means."""

from torch import Tensor

from .block_attention.blocked import empty_blocks, empty_places, sizes_of, summed
from .block_partition import Blocks, blocks_of, equal_ends, from_blocks, to_blocks
from .softmax_attention import softmax_attention


def cut_to_shrink(padding_mask: Tensor, block_size: int) -> Blocks:
    """Cut n real steps into the ``ceil(n / block_size)`` equal blocks that hold at most ``block_size`` each.

    Equal, so that no short rest at the end weighs as much as a whole block in the means of the layers above.

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
        q: ``(B, H, T, D)``.
        k: ``(B, H, T, D)``.
        v: ``(B, H, T, D)``.
        blocks: which step is in which block; padding is in none.
        dropout_p: probability with which a weight is dropped.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding.
    """
    q, k, v = (to_blocks(x, blocks) for x in (q, k, v))
    padding_mask = empty_places(blocks).flatten(0, 1)
    return from_blocks(softmax_attention(q, k, v, padding_mask=padding_mask, dropout_p=dropout_p), blocks)


def block_means(x: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Each block's mean in the place of the block.

    Args:
        x: ``(T, B, C)``.
        blocks: M of them at most; padding is in none.

    Returns:
        ``(M, B, C)`` in the dtype of ``x``, summed in fp32 for half precision, and the padding mask ``(B, M)``,
        True = padding: there is no such block in this sentence. A sentence without steps has one, which is zero.
    """
    means = summed(to_blocks(x.transpose(0, 1)[:, None], blocks)) / sizes_of(blocks)
    return means.to(x.dtype).view(*blocks.sizes.shape, -1).transpose(0, 1), empty_blocks(blocks)

import math
from itertools import pairwise

import pytest
import torch

from fairseq_luna.modules.block_attention import WithinBlockAttention
from fairseq_luna.ops.block_partition import block_means, cut_to_shrink
from numeric import PADDED, assert_same_function, mixed_padding, sequences

SIZE, HEADS, STEPS = 16, 4, 30


def build():
    torch.manual_seed(0)
    return WithinBlockAttention(embed_dim=SIZE, num_heads=HEADS).double()


def inputs(steps=STEPS, batch=3):
    return sequences((steps, batch, SIZE))[0]


def no_padding(steps=STEPS, batch=3):
    return torch.zeros(batch, steps, dtype=torch.bool)


def bounds(length, block_size):
    """Start and end of each equal block: position p of n is in block floor(p m / n)."""
    count = math.ceil(length / block_size)
    starts = [math.ceil(i * length / count) for i in range(count + 1)]
    return list(pairwise(starts))


def by_loops(module, x, mask, block_size):
    """For each sentence the attention ``(n, C)`` and the block means ``(m, C)``, by loops over blocks and heads."""
    results = []
    for row in range(mask.shape[0]):
        own = x[~mask[row], row]
        outs = []
        for start, end in bounds(len(own), block_size):
            block = own[start:end]
            q, k, v = (
                proj(block).view(-1, HEADS, SIZE // HEADS) for proj in (module.q_proj, module.k_proj, module.v_proj)
            )
            heads = [(q[:, h] @ k[:, h].T / math.sqrt(SIZE // HEADS)).softmax(-1) @ v[:, h] for h in range(HEADS)]
            outs.append(module.out_proj(torch.cat(heads, dim=-1)))
        results.append((torch.cat(outs), torch.stack([out.mean(0) for out in outs])))
    return results


@pytest.mark.parametrize("block_size", [1, 4, 7, 1000])
@PADDED
def test_equals_loops_over_sentences_and_blocks(block_size, padded):
    module, x = build(), inputs()
    mask = mixed_padding(STEPS) if padded else no_padding()
    blocks = cut_to_shrink(mask, block_size)
    out = module(x, blocks=blocks)
    means, means_mask = block_means(out, blocks)
    attended, summaries = (torch.cat(parts) for parts in zip(*by_loops(module, x, mask, block_size), strict=True))
    torch.testing.assert_close(out.transpose(0, 1)[~mask], attended)
    assert_same_function(means.transpose(0, 1)[~means_mask], summaries, [x, *module.parameters()])


@pytest.mark.parametrize("block_size", [2, 3, 8])
def test_lengths_shrink_by_the_block_size(block_size):
    mask = mixed_padding(STEPS)
    lengths, steps = (~mask).sum(1), STEPS
    x = inputs().detach()
    while steps > 1:
        blocks = cut_to_shrink(mask, block_size)
        assert blocks.sizes.max() <= block_size
        full = blocks.sizes[0][blocks.sizes[0] > 0]
        assert full.max() - full.min() <= 1
        x, mask = block_means(x, blocks)
        lengths, steps = -(-lengths // block_size), -(-steps // block_size)
        assert x.shape[0] == steps
        assert (~mask).sum(1).equal(lengths)


def test_one_step_is_unchanged():
    x = inputs(steps=1)
    means, mask = block_means(x, cut_to_shrink(no_padding(steps=1), 4))
    torch.testing.assert_close(means, x)
    assert not mask.any()


def test_a_sentence_of_padding_has_one_block_of_zeros():
    blocks = cut_to_shrink(~no_padding(), 4)
    x = inputs()
    assert torch.isfinite(build()(x, blocks=blocks)).all()
    means, mask = block_means(x, blocks)
    assert (~mask).sum(1).tolist() == [1, 1, 1]
    assert means.abs().max() == 0

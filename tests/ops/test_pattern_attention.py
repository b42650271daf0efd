"""Properties of attention to patterns beside the contract of every attention."""

import pytest
import torch
import torch.nn.functional as F

from every_op import OPS, PATTERNS, PATTERNS_FOR_ENCODERS
from fairseq_luna.ops.pattern_attention import RandomBlocks
from fairseq_luna.ops.pattern_attention.patterns import NONE
from numeric import PADDED, assert_same_function, random_padding

CASES = [*PATTERNS, *PATTERNS_FOR_ENCODERS, *(f"{name}-causal" for name in PATTERNS)]
# The same, written out for 70 steps: a row is a query.
SEEN = {
    "window": lambda i, j: (i - j).abs() <= 5,
    "wide-window": lambda i, j: (i - j).abs() <= 200,
    "dilated-window": lambda i, j: ((i - j).abs() <= 60) & ((i - j) % 3 == 0),
    "strided": lambda i, j: (i // 8 == j // 8) | (j % 8 == 6) | (j % 8 == 7),
    "window-and-first": lambda i, j: ((i - j).abs() <= 5) | (j == 0),
    "dilated-window-and-first": lambda i, j: (((i - j).abs() <= 27) & ((i - j) % 3 == 0)) | (j == 0),
    "random-blocks": lambda i, j: random_blocks(i // 8, j // 8),
}
# The steps that are kept of 130, without padding; with it, a strided attention keeps all.
KEPT = {"window": 5, "wide-window": 130, "dilated-window": 60, "topk": 130, "strided": 16 * 2 + 2}


def random_blocks(i, j):
    """Of nine blocks the own, its neighbors, the first, the last, and three that the pattern draws."""
    pattern = PATTERNS_FOR_ENCODERS["random-blocks"](torch.arange(2))
    drawn = pattern.seen_blocks(torch.tensor([9]), 9)[0, :, :, 5:]
    in_random = (drawn[:, i[:, 0], None] == j[:, None]).any(-1)
    return in_random | ((i - j).abs() <= 1) | (j == 0) | (j == 8) | (i == 0) | (i == 8)


@pytest.mark.parametrize("case", CASES)
def test_is_torchs_attention_with_this_mask(case):
    op, name = OPS[case], case.removesuffix("-causal")
    q, k, v = inputs = op.make(T=70)
    i, j = torch.arange(70)[:, None], torch.arange(70)
    seen = (i >= j) if op.causal else torch.ones(70, 70, dtype=torch.bool)
    if name == "topk":
        scores = (q @ k.mT).masked_fill(~seen, -torch.inf)
        largest = scores.topk(PATTERNS[name].count).indices
        seen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, largest, True) & seen
    else:
        seen = seen & SEEN[name](i, j)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    [actual] = op("fast", inputs)
    assert_same_function(actual, expected, inputs)


@pytest.mark.parametrize("name", PATTERNS)
@PADDED
def test_the_cache_has_what_later_steps_see(name, padded):
    op = OPS[f"{name}-causal"]
    mask = random_padding(3, 130, share=0.3) if padded else None
    *_, (_, cache) = op.in_steps(op.make(T=130), mask)
    places = sum(x.shape[2] for x in (cache.k, cache.summary_k) if x is not None)
    assert places == (130 if padded and name == "strided" else KEPT[name])


def test_random_blocks_are_different_free_and_evenly_drawn():
    pattern = RandomBlocks(4, 3, seeds=torch.randint(2**31, (4000,), generator=torch.Generator().manual_seed(0)))
    [seen] = pattern.seen_blocks(torch.tensor([12]), 12)
    assert pattern.seen_blocks(torch.tensor([3, 12]), 12)[1].equal(seen)
    for block, near in {1: {0, 1, 2, 11}, 5: {4, 5, 6, 0, 11}, 10: {9, 10, 11, 0}}.items():
        drawn = seen[:, block, 5:]
        assert set(seen[0, block, :5].tolist()) - {NONE} == near
        assert (drawn.sort(-1).values.diff() > 0).all()
        counts = drawn.flatten().bincount(minlength=12)
        free = 12 - len(near)
        expected = torch.tensor([0 if number in near else 12_000 / free for number in range(12)])
        assert (counts - expected).abs().max() < 150 and not counts[list(near)].any()
    assert (pattern.seen_blocks(torch.tensor([7]), 12)[0, :, 3, 5:] == NONE).sum(-1).eq(1).all()

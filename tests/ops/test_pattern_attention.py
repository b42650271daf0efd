"""Attention to patterns: every fast form and the steps of generation against the specification."""

import functools

import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.ops.pattern_attention import chunked, fused, naive, recurrent
from fairseq_luna.ops.pattern_attention.shared import NONE, RandomBlocks, Strided, TopK, Window
from largest_tensor import LargestTensor
from numeric import (
    EVERY_DTYPE,
    PADDED,
    TOLERANCE,
    assert_gradients_close,
    mixed_padding,
    randn,
    random_padding,
)

PATTERNS = {
    "window": Window(5),
    "wide-window": Window(200),
    "dilated-window": Window(20, dilation=3),
    "topk": TopK(4),
    "strided": Strided(8, 2),
    "window-and-first": Window(5, first=True),
    "dilated-window-and-first": Window(9, dilation=3, first=True),
    "random-blocks": RandomBlocks(8, 3, seeds=torch.tensor([5, 6])),
}
FOR_ENCODERS = {"window-and-first", "dilated-window-and-first", "random-blocks"}
CASES = [(name, causal) for name in PATTERNS for causal in (False, True) if not (causal and name in FOR_ENCODERS)]
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
EVERY_CASE = pytest.mark.parametrize(
    ("name", "causal"), CASES, ids=[f"{name}-{'causal' if causal else 'both'}" for name, causal in CASES]
)
CAUSAL = pytest.mark.parametrize("name", dict(name for name in CASES if name[1]))


def random_blocks(i, j):
    """Of nine blocks the own, its neighbours, the first, the last, and three that the pattern draws."""
    drawn = PATTERNS["random-blocks"].seen_blocks(torch.tensor([9]), 9)[0, :, :, 5:]
    in_random = (drawn[:, i[:, 0], None] == j[:, None]).any(-1)
    return in_random | ((i - j).abs() <= 1) | (j == 0) | (j == 8) | (i == 0) | (i == 8)


def inputs(*shape, dtype=torch.float64):
    return [randn(*shape, dtype=dtype, seed=seed) for seed in range(3)]


def mask_of(steps, batch):
    """Padding at any position, and in the last row nothing else."""
    mask = random_padding(batch, steps, share=0.3)
    mask[-1] = True
    return mask


@EVERY_CASE
@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize("shape", [(2, 2, 1, 4), (3, 2, 150, 4)], ids=["T1", "T150"])
def test_equals_the_specification(shape, dtype, padded, name, causal):
    args = inputs(*shape, dtype=dtype)
    options = {"padding_mask": mask_of(shape[2], shape[0]) if padded else None, "causal": causal}
    expected = naive.pattern_attention(*args, PATTERNS[name], **options)
    actual = chunked.pattern_attention(*args, PATTERNS[name], **options)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, args, dtype)
    if padded:
        assert not actual[-1].any()


@EVERY_CASE
def test_is_torchs_attention_with_this_mask(name, causal):
    q, k, v = inputs(2, 2, 70, 4)
    i, j = torch.arange(70)[:, None], torch.arange(70)
    pattern, seen = PATTERNS[name], torch.ones(70, 70, dtype=torch.bool)
    if causal:
        seen = seen.tril()
    if isinstance(pattern, TopK):
        scores = (q @ k.mT).masked_fill(~seen, -torch.inf)
        largest = scores.topk(pattern.count).indices
        seen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, largest, True) & seen
    else:
        seen = seen & SEEN[name](i, j)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    actual = chunked.pattern_attention(q, k, v, pattern, causal=causal)
    torch.testing.assert_close(actual, expected)
    assert_gradients_close(actual, expected, (q, k, v), torch.float64)


@EVERY_CASE
def test_padding_moves_nothing(name, causal):
    args, mask = inputs(3, 2, 90, 4), mixed_padding(90)
    out = chunked.pattern_attention(*args, PATTERNS[name], padding_mask=mask, causal=causal)
    for row in range(3):
        real = ~mask[row]
        alone = chunked.pattern_attention(*(x[row : row + 1, :, real] for x in args), PATTERNS[name], causal=causal)
        torch.testing.assert_close(out[row, :, real], alone[0])


@CAUSAL
def test_no_step_sees_a_later_one(name):
    args = inputs(1, 2, 90, 4)
    for gradient in torch.autograd.grad(
        chunked.pattern_attention(*args, PATTERNS[name], causal=True)[:, :, 60].sum(), args
    ):
        assert not gradient[:, :, 61:].any() and gradient[:, :, 30:61].any()


@CAUSAL
@PADDED
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["fp64", "bf16"])
@torch.no_grad()
def test_steps_equal_the_whole(name, padded, dtype):
    args, mask = inputs(3, 2, 130, 4, dtype=dtype), random_padding(3, 130, share=0.3) if padded else None
    if padded:
        mask[0, :9] = True
    expected = chunked.pattern_attention(*args, PATTERNS[name], padding_mask=mask, causal=True)
    cache, parts = recurrent.initial_cache(args[1]), []
    for now in torch.arange(130).split([3, *[1] * 100, 27]):
        given = None if mask is None else mask[:, now]
        y, cache = recurrent.pattern_attention_step(
            *(x[:, :, now] for x in args), PATTERNS[name], cache, padding_mask=given
        )
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, dim=2), expected, **TOLERANCE[dtype])
    places = sum(x.shape[2] for x in (cache.k, cache.summary_k) if x is not None)
    kept = {
        "window": 5,
        "wide-window": 130,
        "dilated-window": 60,
        "topk": 130,
        "strided": 130 if padded else 16 * 2 + 2,
    }
    assert places == kept[name]


@pytest.mark.parametrize("pattern", [Window(5), Strided(6, 2)], ids=["window", "strided"])
@torch.no_grad()
def test_padding_may_begin_late_in_generation(pattern):
    args, mask = inputs(2, 1, 30, 4), torch.zeros(2, 30, dtype=torch.bool)
    mask[1, 20:24] = True
    expected = chunked.pattern_attention(*args, pattern, padding_mask=mask, causal=True)
    cache, parts = recurrent.initial_cache(args[1]), []
    for t in range(30):
        now = slice(t, t + 1)
        given = mask[:, now] if 18 < t < 25 else None
        y, cache = recurrent.pattern_attention_step(*(x[:, :, now] for x in args), pattern, cache, padding_mask=given)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, dim=2), expected)


@pytest.mark.parametrize(
    ("pattern", "causal"),
    [
        (Window(16), False),
        (Window(16), True),
        (Window(8, dilation=4, first=True), False),
        (RandomBlocks(8, 1, seeds=torch.tensor([5, 6])), False),
    ],
    ids=["window", "window-causal", "dilated-and-first", "random-blocks"],
)
def test_no_tensor_grows_with_the_square_of_the_length(pattern, causal):
    steps = 8192
    args = inputs(1, 2, steps, 4, dtype=torch.float32)
    with LargestTensor() as largest:
        chunked.pattern_attention(*args, pattern, padding_mask=random_padding(1, steps, share=0.1), causal=causal).sum()
    assert largest.elements <= steps * 2 * 3 * 16


@PADDED
@EVERY_DTYPE
def test_topk_of_a_source_with_its_weights(dtype, padded):
    q, k, v = (randn(3, 2, steps, 4, dtype=dtype, seed=seed) for seed, steps in enumerate((7, 30, 30)))
    options = {"count": 5, "padding_mask": mask_of(30, 3) if padded else None, "need_weights": True}
    expected, weights = naive.topk_attention(q, k, v, **options)
    actual, found = fused.topk_attention(q, k, v, **options)
    torch.testing.assert_close((actual, found), (expected, weights), **TOLERANCE[dtype])
    assert_gradients_close(torch.cat([actual, found], -1), torch.cat([expected, weights], -1), (q, k, v), dtype)
    assert found.count_nonzero(-1).amax() <= 5 and fused.topk_attention(q, k, v, count=5)[1] is None


@EVERY_CASE
def test_dropout_drops_weights(name, causal):
    args = [x[:1].expand(300, -1, -1, -1) for x in inputs(300, 2, 60, 4)]
    torch.manual_seed(0)
    forms = [functools.partial(form.pattern_attention, dropout_p=0.5) for form in (naive, chunked)]
    if causal:
        cache = recurrent.initial_cache(args[1])
        forms.append(lambda *args, causal: recurrent.pattern_attention_step(*args, cache, dropout_p=0.5)[0])
    whole = naive.pattern_attention(*(x[:1] for x in args), PATTERNS[name], causal=causal)
    for form in forms:
        dropped = form(*args, PATTERNS[name], causal=causal)
        assert dropped.std(0).amin() > 1e-3
        torch.testing.assert_close(dropped.mean(0), whole[0], rtol=0, atol=0.6)


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

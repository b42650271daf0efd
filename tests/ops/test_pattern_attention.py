"""Attention to patterns: every fast form and the steps of generation against the specification."""

import functools

import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.ops.pattern_attention import chunked, fused, naive, recurrent
from fairseq_luna.ops.pattern_attention.shared import TopK, Window
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
}
CASES = [(name, causal) for name in PATTERNS for causal in (False, True)]
EVERY_CASE = pytest.mark.parametrize(
    ("name", "causal"), CASES, ids=[f"{name}-{'causal' if causal else 'both'}" for name, causal in CASES]
)
CAUSAL = pytest.mark.parametrize("name", dict(name for name in CASES if name[1]))


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
@pytest.mark.parametrize("shape", [(2, 1, 1, 4), (3, 2, 150, 4)], ids=["T1", "T150"])
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
    q, k, v = inputs(2, 3, 70, 4)
    i, j = torch.arange(70)[:, None], torch.arange(70)
    pattern, seen = PATTERNS[name], torch.ones(70, 70, dtype=torch.bool)
    if causal:
        seen = seen.tril()
    if isinstance(pattern, TopK):
        scores = (q @ k.mT).masked_fill(~seen, -torch.inf)
        largest = scores.topk(pattern.count).indices
        seen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, largest, True) & seen
    else:
        seen = seen & ((i - j).abs() <= pattern.window * pattern.dilation) & ((i - j) % pattern.dilation == 0)
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
    pattern = PATTERNS[name]
    assert cache.k.shape[2] == (min(130, pattern.reach) if isinstance(pattern, Window) else 130)


@torch.no_grad()
def test_padding_may_begin_late_in_generation():
    args, mask = inputs(2, 1, 30, 4), torch.zeros(2, 30, dtype=torch.bool)
    mask[1, 20:24] = True
    expected = chunked.pattern_attention(*args, Window(5), padding_mask=mask, causal=True)
    cache, parts = recurrent.initial_cache(args[1]), []
    for t in range(30):
        now = slice(t, t + 1)
        given = mask[:, now] if 18 < t < 25 else None
        y, cache = recurrent.pattern_attention_step(*(x[:, :, now] for x in args), Window(5), cache, padding_mask=given)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, dim=2), expected)


@pytest.mark.parametrize("causal", [False, True], ids=["both", "causal"])
@pytest.mark.parametrize("pattern", [Window(16), Window(8, dilation=4)], ids=["window", "dilated"])
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
    args = [x[:1].expand(300, -1, -1, -1) for x in inputs(300, 1, 60, 4)]
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

import pytest
import torch

from fairseq_luna.ops.real_steps import pack_left
from fairseq_luna.ops.synthesizer_attention import (
    fused,
    initial_values,
    naive,
    next_positions,
    synthesizer_attention,
    synthesizer_attention_step,
)
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, mixed_padding, randn

FORMS = pytest.mark.parametrize("form", [naive, fused], ids=["naive", "fused"])
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
SHARED = pytest.mark.parametrize("shared", [False, True], ids=["of-words", "of-positions"])


def inputs(steps=40, *, shared=False, dtype=torch.float64):
    return randn(1 if shared else 3, 2, steps, steps, dtype=dtype), randn(3, 2, steps, 8, dtype=dtype, seed=1)


@PADDED
@EVERY_DTYPE
@CAUSAL
@SHARED
@pytest.mark.parametrize("steps", [1, 20])
def test_fused_equals_naive(steps, shared, causal, dtype, padded):
    args = inputs(steps, shared=shared, dtype=dtype)
    mask = mixed_padding(steps) if padded and steps > 1 else None
    expected = naive.synthesizer_attention(*args, padding_mask=mask, causal=causal)
    actual = fused.synthesizer_attention(*args, padding_mask=mask, causal=causal)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, args, dtype)


@PADDED
@EVERY_DTYPE
@CAUSAL
@pytest.mark.parametrize("steps", [1, 20])
def test_fused_keys_of_positions_equal_naive(steps, causal, dtype, padded):
    q, keys, v = (randn(*shape, steps, 8, dtype=dtype, seed=len(shape)) for shape in ((3, 2), (2,), (3, 2)))
    mask = mixed_padding(steps) if padded and steps > 1 else None
    if mask is not None:
        mask[2] = True
    expected = naive.position_attention(q, keys, v, padding_mask=mask, causal=causal)
    actual = fused.position_attention(q, keys, v, padding_mask=mask, causal=causal)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, (q, keys, v), dtype)
    of_positions = pack_left(q, mask) @ keys.mT
    whole = naive.synthesizer_attention(of_positions, v, padding_mask=mask, causal=causal)
    torch.testing.assert_close(actual, whole, **TOLERANCE[dtype])


@FORMS
@CAUSAL
@SHARED
def test_padding_is_neither_seen_nor_counted(form, shared, causal):
    (scores, v), mask = inputs(shared=shared), mixed_padding(40)
    mask[2] = True
    out = form.synthesizer_attention(scores, v, padding_mask=mask, causal=causal)
    assert not out.masked_select(mask[:, None, :, None]).any()
    for row in range(2):
        real = ~mask[row]
        own = scores[0 if shared else row, None, :, : real.sum(), : real.sum()]
        alone = form.synthesizer_attention(own, v[row : row + 1, :, real], causal=causal)
        torch.testing.assert_close(out[row : row + 1, :, real], alone)


@FORMS
def test_scores_before_the_softmax_are_those_of_the_formula(form):
    scores, v = inputs(20)
    weights = scores.exp().tril()
    expected = weights @ v / weights.sum(-1, keepdim=True)
    torch.testing.assert_close(form.synthesizer_attention(scores, v, causal=True), expected)


@PADDED
@SHARED
@torch.no_grad()
@pytest.mark.parametrize("at_once", [1, 4])
def test_steps_equal_the_whole_pass(at_once, shared, padded):
    (scores, v), mask = inputs(shared=shared), mixed_padding(40)
    expected = synthesizer_attention(scores, v, padding_mask=mask if padded else None, causal=True)
    state = initial_values(v)
    rows = scores.expand(3, -1, -1, -1)
    for t in range(0, 40, at_once):
        now = slice(t, t + at_once)
        padding_mask = mask[:, now] if padded and mask[:, now].any() else None
        p = next_positions(state, at_once, padding_mask).expand(3, -1)
        of_steps = rows.gather(2, p[:, None, :, None].expand(-1, 2, -1, 40))[..., : t + at_once]
        of_steps = of_steps[:1] if shared and not padded else of_steps
        y, state = synthesizer_attention_step(of_steps, v[:, :, now], state, padding_mask=padding_mask)
        torch.testing.assert_close(y, expected[:, :, now])
    assert state.v.shape == v.shape
    assert (state.steps is None) == (not padded)


@pytest.mark.parametrize("mask", [None, mixed_padding(60)], ids=["whole", "padded"])
def test_a_causal_batch_shares_the_weights_of_positions(mask):
    scores, v = inputs(60, shared=True, dtype=torch.float32)
    with LargestTensor() as largest:
        fused.synthesizer_attention(scores, v, padding_mask=mask, causal=True).sum().backward()
    assert largest.elements == scores.numel()

import pytest
import torch

from fairseq_luna.ops.external_attention import fused, naive, recurrent
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, gradients, mixed_padding, randn

BIDIRECTIONAL = (naive.external_attention, fused.external_attention)
CAUSAL = (naive.external_causal_attention, fused.external_causal_attention)
EVERY_FORM = pytest.mark.parametrize("form", BIDIRECTIONAL + CAUSAL, ids=["naive", "fused", "naive-causal", "causal"])


def inputs(steps=40, slots=5, dtype=torch.float64, scale=1.0):
    q = (scale * randn(3, 2, steps, 8, grad=False)).to(dtype).requires_grad_()
    return [q, *(randn(slots, 8, dtype=dtype, seed=seed) for seed in (1, 2))]


def step_by_step(q, keys, values, padding_mask=None):
    state, outputs = recurrent.initial_slot_means(q, keys), []
    for t in range(q.shape[2]):
        step = slice(t, t + 1)
        padded = None if padding_mask is None else padding_mask[:, step]
        out, state = recurrent.external_causal_attention_step(q[:, :, step], keys, values, state, padding_mask=padded)
        assert state.log_mean.shape == (*q.shape[:2], len(keys))
        outputs.append(out)
    return torch.cat(outputs, 2)


@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize(("forms", "steps"), [(BIDIRECTIONAL, 40), (CAUSAL, 40), (CAUSAL, 1)])
def test_fused_equals_naive(forms, steps, dtype, padded):
    args, mask = inputs(steps, dtype=dtype), mixed_padding(steps) if padded and steps > 1 else None
    expected, actual = (form(*args, padding_mask=mask) for form in forms)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, args, dtype)


@EVERY_FORM
def test_padding_is_not_seen_at_any_position(form):
    (q, *slots), mask = inputs(), mixed_padding(40)
    mask[2] = True
    out = form(q, *slots, padding_mask=mask)
    assert not out[2].any()
    for row in range(2):
        real = ~mask[row]
        alone = form(q[row : row + 1, :, real], *slots)
        torch.testing.assert_close(out[row : row + 1, :, real], alone)
    seen, *others = gradients(out.transpose(1, 2)[~mask], q, *slots)
    assert not seen.transpose(1, 2)[mask].any()
    assert all(torch.isfinite(gradient).all() and gradient.any() for gradient in (seen, *others))


@pytest.mark.parametrize("form", CAUSAL, ids=["naive", "fused"])
def test_no_step_sees_a_later_one(form):
    q, *slots = inputs()
    changed = q.detach().clone()
    changed[:, :, 20:] += 1
    before, after = form(q, *slots), form(changed, *slots)
    assert before[:, :, :20].equal(after[:, :, :20])
    assert (before - after)[:, :, 20:].abs().amax(-1).min() > 1e-6


@PADDED
@EVERY_DTYPE
@torch.no_grad()
def test_one_step_at_a_time_equals_the_whole(dtype, padded):
    args, mask = inputs(512, dtype=dtype), mixed_padding(512) if padded else None
    expected = fused.external_causal_attention(*args, padding_mask=mask)
    actual = step_by_step(*args, padding_mask=mask)
    real = torch.ones(3, 512, dtype=torch.bool) if mask is None else ~mask
    torch.testing.assert_close(actual.transpose(1, 2)[real], expected.transpose(1, 2)[real], **TOLERANCE[dtype])


@EVERY_FORM
def test_what_is_added_to_the_scores_of_a_slot_has_no_effect(form):
    """So neither queries nor slots need a bias."""
    q, keys, values = inputs()
    torch.testing.assert_close(form(q + randn(8, seed=7), keys, values), form(q, keys, values))


@pytest.mark.parametrize("form", [*CAUSAL, lambda *args: step_by_step(*args)], ids=["naive", "fused", "step"])
def test_large_scores_are_finite(form):
    args = inputs(dtype=torch.float32, scale=1e4)
    out = form(*args)
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(out, *args))


@torch.no_grad()
def test_precision_after_100000_steps():
    _, keys, values = inputs(slots=4, dtype=torch.float32)
    q = randn(1, 1, 100_000, 8, dtype=torch.float32, grad=False)
    expected = fused.external_causal_attention(q.double(), keys.double(), values.double())
    whole = fused.external_causal_attention(q, keys, values)
    torch.testing.assert_close(whole.double(), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_precision_of_the_state_after_30000_steps():
    scores = 3 * randn(30_000, 1, 1, 4, dtype=torch.float32, grad=False)
    state = recurrent.SlotMeans(torch.zeros(1, 1, 4), torch.zeros(1))
    for each in scores:
        state = recurrent.advance(each, state, None)
    expected = scores.double().exp().mean(0).log()
    torch.testing.assert_close(state.log_mean.double(), expected, rtol=0, atol=5e-5)


@pytest.mark.parametrize("form", [BIDIRECTIONAL[1], CAUSAL[1]], ids=["fused", "causal"])
def test_no_tensor_is_larger_than_the_weights(form):
    args = inputs(400, 16, torch.float32)
    with LargestTensor() as largest:
        form(*args, padding_mask=mixed_padding(400)).sum().backward()
    assert largest.elements == 3 * 2 * 400 * 16

import pytest
import torch

from fairseq_luna.ops.linformer_attention import fused, naive
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, mixed_padding, randn
from support import golden

FORMS = pytest.mark.parametrize("form", [naive, fused], ids=["naive", "fused"])


def inputs(steps=40, slots=5, dtype=torch.float64, longest=60):
    sequences = [randn(3, 2, steps, 8, dtype=dtype, seed=seed) for seed in range(3)]
    sums = [(randn(slots, longest, grad=False, seed=seed) / 4).to(dtype).requires_grad_() for seed in (3, 4)]
    return *sequences, *sums


@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize(("steps", "slots"), [(1, 3), (20, 1), (40, 60)])
def test_fused_equals_naive(steps, slots, dtype, padded):
    args = inputs(steps, slots, dtype)
    mask = mixed_padding(steps) if padded and steps > 1 else None
    expected = naive.linformer_attention(*args, padding_mask=mask)
    actual = fused.linformer_attention(*args, padding_mask=mask)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, args, dtype)


@FORMS
def test_padding_is_not_seen_at_any_position(form):
    (q, k, v, *sums), mask = inputs(), mixed_padding(40)
    mask[2] = True
    out = form.linformer_attention(q, k, v, *sums, padding_mask=mask)
    assert not out[2].any()
    for row in range(2):
        real = ~mask[row]
        alone = form.linformer_attention(*(x[row : row + 1, :, real] for x in (q, k, v)), *sums)
        torch.testing.assert_close(out[row : row + 1, :, real], alone)


@PADDED
def test_weights_are_those_with_which_values_are_added(padded):
    (q, k, v, *sums), mask = inputs(), mixed_padding(40) if padded else None
    keys, values = fused.linformer_slots(k, v, *sums, padding_mask=mask)
    slot_weights = (q @ keys.mT / 8**0.5).softmax(-1)
    weights = fused.linformer_weights(slot_weights, sums[1], 40, padding_mask=mask)
    torch.testing.assert_close(weights @ v, slot_weights @ values)


def test_no_tensor_is_larger_than_the_sequence():
    q, k, v, *sums = inputs(400, 4, torch.float32, longest=400)
    with LargestTensor() as largest:
        fused.linformer_attention(q, k, v, *sums, padding_mask=mixed_padding(400)).sum().backward()
    assert largest.elements == q.numel()


@FORMS
def test_equals_the_numbers_of_the_published_implementation(form):
    recorded = golden("linformer.pt")
    q, k, v, sums = (recorded[name].clone().requires_grad_() for name in ("q", "k", "v", "sums"))
    mask = torch.arange(q.shape[2]) >= recorded["lengths"][:, None]
    out = form.linformer_attention(q, k, v, sums, sums, padding_mask=mask)
    torch.testing.assert_close(out, recorded["output"], rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(out, (q, k, v, sums), recorded["grad_output"])
    for name, gradient in zip(("q", "k", "v", "sums"), gradients, strict=True):
        torch.testing.assert_close(gradient, recorded[f"grad_{name}"], rtol=1e-4, atol=1e-5)

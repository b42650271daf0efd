import pytest
import torch

from fairseq_luna.ops.nystrom_attention import fused, naive
from fairseq_luna.ops.nystrom_attention.shared import pseudo_inverse
from fairseq_luna.ops.softmax_attention.naive import softmax_attention
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, gradients, mixed_padding, randn
from support import golden

FORMS = pytest.mark.parametrize("form", [naive, fused], ids=["naive", "fused"])
# Half precision rounds the landmarks, whose inverse is large: outputs and gradients, of the largest of each.
HALF = {torch.bfloat16: 0.05, torch.float16: 0.01}


def inputs(steps=40, dtype=torch.float64, kernel=5):
    sequences = [randn(3, 2, steps, 8, dtype=dtype, seed=seed) for seed in range(3)]
    return *sequences, (randn(2, kernel, grad=False) / 2).to(dtype).requires_grad_()


def real_of(x, mask):
    """The real steps of ``x (B, H, T, D)``."""
    return x.transpose(1, 2)[~mask]


@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize(("steps", "landmarks"), [(1, 4), (40, 1), (40, 7), (40, 100), (130, 7)])
def test_fused_equals_naive(steps, landmarks, dtype, padded):
    args = inputs(steps, dtype)
    mask = mixed_padding(steps) if padded and steps > 1 else None
    real = torch.zeros(3, steps, dtype=torch.bool) if mask is None else mask
    found = []
    for form in (naive, fused):
        out = real_of(form.nystrom_attention(*args, num_landmarks=landmarks, padding_mask=mask), real)
        assert out.dtype == dtype
        found.append((out, *gradients(out, *args)))
    for ours, theirs in zip(found[1], found[0], strict=True):
        scale = theirs.abs().max().clamp(min=1)
        bound = HALF.get(dtype) or TOLERANCE[dtype]["rtol"]
        assert ((ours - theirs).abs().max() / scale) < bound


@FORMS
@pytest.mark.parametrize("landmarks", [7, 38])
def test_padding_is_not_seen_at_any_position(form, landmarks):
    (q, k, v, kernel), mask = inputs(), mixed_padding(40)
    mask[2] = True
    out = form.nystrom_attention(q, k, v, kernel, num_landmarks=landmarks, padding_mask=mask)
    assert not out[2].any()
    for row in range(2):
        real = ~mask[row]
        alone = form.nystrom_attention(*(x[row : row + 1, :, real] for x in (q, k, v)), kernel, num_landmarks=landmarks)
        torch.testing.assert_close(out[row : row + 1, :, real], alone)
    seen = gradients(real_of(out, mask), q, k, v, kernel)
    assert all(torch.isfinite(gradient).all() and gradient.any() for gradient in seen)
    assert not any(gradient.transpose(1, 2)[mask].any() for gradient in seen[:3])


def test_with_a_landmark_for_each_step_it_is_softmax_attention():
    """Here six iterations are not enough: twenty are."""
    (q, k, v, kernel), mask = inputs(12), mixed_padding(12)
    mask[0] = False
    expected = real_of(softmax_attention(q, k, v, padding_mask=mask)[0], mask)
    near, nearer = (
        real_of(
            fused.nystrom_attention(*(q, k, v, 0 * kernel), num_landmarks=12, iterations=iterations, padding_mask=mask),
            mask,
        )
        for iterations in (6, 40)
    )
    torch.testing.assert_close(nearer, expected, rtol=1e-5, atol=1e-6)
    assert (near - expected).abs().max() > 1e-2


def test_the_iteration_tends_to_the_inverse():
    matrix = (3 * randn(20, 4, 4, grad=False)).softmax(-1)
    exact = torch.linalg.pinv(matrix)
    errors = [(pseudo_inverse(matrix, n) - exact).norm() / exact.norm() for n in (6, 20)]
    assert errors[1] < 1e-6 < 1e-2 < errors[0]


def test_no_tensor_is_larger_than_the_sequence():
    args = inputs(400, torch.float32)
    with LargestTensor() as largest:
        fused.nystrom_attention(*args, num_landmarks=4, padding_mask=mixed_padding(400)).sum().backward()
    assert largest.elements <= 3 * args[0].numel()


@FORMS
def test_equals_the_numbers_of_the_authors(form):
    recorded = golden("nystrom.pt")
    args = [recorded[name].clone().requires_grad_() for name in ("q", "k", "v", "kernel")]
    out = form.nystrom_attention(*args, num_landmarks=recorded["num_landmarks"])
    torch.testing.assert_close(out, recorded["output"], rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(out, args, recorded["grad_output"])
    for name, gradient in zip(("q", "k", "v", "kernel"), gradients, strict=True):
        torch.testing.assert_close(gradient, recorded[f"grad_{name}"], rtol=1e-4, atol=1e-5)

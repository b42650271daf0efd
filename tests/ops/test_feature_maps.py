import math

import pytest
import torch

from attention_op import References
from fairseq_luna.ops import feature_maps as fused
from fairseq_luna.ops.feature_maps import orthogonal_directions
from numeric import EVERY_DTYPE, TOLERANCE, assert_gradients_close, randn

naive = References(fused)
HEADS, STEPS, SIZE, FEATURES = 3, 20, 8, 12
# Each takes the references or the module of the fast forms, and a tensor (B, H, T, D).
MAPS = {
    "elu": lambda form, x: form.elu_features(x),
    "positive-query": lambda form, x: form.positive_query_features(x, orthogonal(x)),
    "positive-key": lambda form, x: form.positive_key_features(x, orthogonal(x)),
    "fourier": lambda form, x: form.fourier_features(x, normal(x)),
    "hedgehog": lambda form, x: form.hedgehog_features(x, *learned(x)),
    "softmax": lambda form, x: form.softmax_features(x),
    "exponential": lambda form, x: form.exponential_features(x),
}
EVERY_MAP = pytest.mark.parametrize("features", MAPS.values(), ids=MAPS)
FORMS = pytest.mark.parametrize("form", [naive, fused], ids=["naive", "fused"])


def orthogonal(like):
    return orthogonal_directions(FEATURES, SIZE, generator=torch.Generator().manual_seed(0)).to(like)


def normal(like):
    return randn(HEADS, FEATURES, SIZE, dtype=torch.float32, grad=False).to(like)


def learned(like):
    sizes = (HEADS, SIZE, SIZE), (HEADS, SIZE)
    return [0.5 * randn(*size, seed=n, dtype=torch.float32, grad=False).to(like) for n, size in enumerate(sizes)]


def inputs(dtype=torch.float64, scale=1.0):
    return (randn(2, HEADS, STEPS, SIZE, grad=False) * scale).to(dtype).requires_grad_()


@EVERY_DTYPE
@pytest.mark.parametrize("scale", [1.0, 30.0])
@EVERY_MAP
def test_fused_equals_naive(features, scale, dtype):
    x = inputs(dtype, scale)
    expected, actual = features(naive, x), features(fused, x)
    assert actual.dtype == expected.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    largest = expected.detach().abs().max()
    torch.testing.assert_close(
        actual / largest, expected / largest, **TOLERANCE[torch.promote_types(dtype, torch.float32)]
    )
    assert_gradients_close(actual / largest, expected / largest, [x], dtype)


@FORMS
def test_fourier_directions_get_the_same_gradient(form):
    x, directions = inputs(), normal(inputs().detach()).requires_grad_()
    found = form.fourier_features(x, directions)
    expected = naive.fourier_features(x, directions)
    assert_gradients_close(found, expected, [directions], torch.float64)


def test_hedgehogs_map_gets_the_same_gradients():
    x = inputs()
    weight, bias = (tensor.requires_grad_() for tensor in learned(x))
    found, expected = (form.hedgehog_features(x, weight, bias) for form in (fused, naive))
    assert_gradients_close(found, expected, [weight, bias], torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_elu_keeps_its_digits_far_below_zero(dtype):
    x = torch.tensor([-80.0, -20.0, -17.0, -1.0, 0.0, 3.0], dtype=dtype, requires_grad=True)
    found = fused.elu_features(x)
    expected = [math.exp(v) for v in (-80, -20, -17, -1)] + [1.0, 4.0]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=0)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    slope = torch.tensor([*expected[:5], 1.0]).to(dtype)
    torch.testing.assert_close(gradient, slope)


@EVERY_MAP
@FORMS
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 1e4])
def test_finite_at_any_scale(features, form, scale):
    x = inputs(torch.float32, scale)
    found = features(form, x)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert torch.isfinite(found).all() and torch.isfinite(gradient).all()


@EVERY_MAP
@FORMS
def test_steps_do_not_depend_on_each_other(features, form):
    x = inputs()
    (seen,) = torch.autograd.grad(
        (features(form, x)[:, :, 7] * torch.linspace(-1, 2, features(form, x).shape[-1])).sum(), x
    )
    assert seen[:, :, 7].abs().min() > 0
    assert seen[:, :, :7].abs().max() == seen[:, :, 8:].abs().max() == 0


@FORMS
def test_exponents_of_keys_are_clamped(form):
    directions = orthogonal(inputs()) * 10
    along, against = (form.positive_key_features(sign * SIZE**0.25 * directions, directions) for sign in (1, -1))
    bounds = [math.exp(exponent) / FEATURES**0.5 for exponent in (40, -40)]
    assert [along.max().item(), against.min().item()] == pytest.approx(bounds, rel=1e-9, abs=0)
    found = form.exponential_features(inputs(scale=30.0))
    assert [found.max().item(), found.min().item()] == pytest.approx([math.exp(30), math.exp(-30)], rel=1e-9, abs=0)


@FORMS
def test_the_largest_positive_feature_of_a_query_is_known(form):
    found = form.positive_query_features(inputs(), orthogonal(inputs()))
    torch.testing.assert_close(found.amax(-1), torch.full((2, HEADS, STEPS), FEATURES**-0.5, dtype=torch.float64))


@FORMS
def test_fourier_features_estimate_a_gaussian_of_the_distance(form):
    many, expected_scale = 200_000, 0.01 * 200_000
    x, y = (v / v.norm() for v in randn(2, SIZE, grad=False))
    directions = torch.randn(1, many, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    of_x, of_y = (form.fourier_features(v[None, None, None], directions) for v in (x, y))
    exact = math.exp(-(x - y).square().sum() / 2)
    assert (of_x * of_y).sum().item() / expected_scale == pytest.approx(exact, abs=0.01)
    assert (of_x * of_x).sum().item() / expected_scale == pytest.approx(1)


def test_the_fast_fourier_features_save_only_themselves():
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.shape) or x, lambda x: x):
        fused._SinAndCos.apply(inputs())
    assert saved == [(2, HEADS, STEPS, 2 * SIZE)]
    torch.autograd.gradcheck(fused._SinAndCos.apply, inputs())

"""Promises of every attention of ``fairseq_luna.ops``: the fast form and the steps are the specification."""

from inspect import getfullargspec

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attention_op import tensors
from every_op import OPS
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, mixed_padding, randn, random_padding

FORMS = pytest.mark.parametrize("form", ["naive", "fast"])


def each(suits=lambda op: True):
    """Runs a test with each op that suits it."""
    found = {name: op for name, op in OPS.items() if suits(op)}
    return pytest.mark.parametrize("op", found.values(), ids=found)


def takes(option):
    """Whether an op has this option."""
    return lambda op: option in getfullargspec(op.function(op.name)).kwonlyargs


def drops(op):
    """Whether it drops weights, of each sentence apart: those of positions alone are one matrix for a batch."""
    return takes("dropout_p")(op) and not op.shapes.startswith("1")


def gradients(outputs, inputs):
    """Gradients of a random sum of all outputs; 0 for what they do not depend on."""
    outputs = torch.cat([x.flatten().double() for x in outputs])
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    wanted = [x for x in inputs if x.requires_grad]
    return torch.autograd.grad(outputs @ weights, wanted, allow_unused=True, materialize_grads=True)


def with_steps(op, inputs, at):
    """Those of the inputs whose dimension ``at`` are steps."""
    return [x for shape, x in zip(op.shapes.split(), inputs, strict=True) if shape[at : at + 1] == "T"]


def assert_close(actual, expected, tolerance):
    """The difference is relative to the largest number where that is above 1."""
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        scale = theirs.detach().abs().max().clamp(min=1) if theirs.numel() else 1
        torch.testing.assert_close(ours / scale, theirs / scale, **tolerance)


def assert_specified(op, inputs, mask, dtype, bias=None, **cut):
    """The fast form has the outputs of the specification, and every gradient; returns the specified outputs."""
    options = {} if bias is None else {"bias": bias}
    expected, actual = op("naive", inputs, mask, **options), op("fast", inputs, mask, **options, **cut)
    expected, actual = (op.defined(outputs, mask) for outputs in (expected, actual))
    assert actual[0].dtype == dtype
    assert_close(actual, expected, op.tolerance(dtype))
    inputs = [*inputs, *options.values()]
    assert_close(gradients(actual, inputs), gradients(expected, inputs), op.tolerance(dtype))
    return expected


def forms(op, inputs, **options):
    """The outputs of the specification, of the fast form and, if there are any, of the steps."""
    steps = [op.generated(inputs, **options)] if op.steps else []
    return [*(op(form, inputs, **options) for form in ("naive", "fast")), *steps]


@each()
@EVERY_DTYPE
@PADDED
def test_the_fast_form_is_the_specification(op, dtype, padded):
    mask = random_padding(3, 150, share=0.3) if padded else None
    assert_specified(op, op.make(torch.empty(0, dtype=dtype), T=150), mask, dtype)


@pytest.mark.slow
@each()
@settings(max_examples=30, deadline=None)
@given(
    sizes=st.fixed_dictionaries(
        {letter: st.integers(1, most) for letter, most in zip("BHTDERLSQ", (3, 3, 60, 8, 6, 8, 6, 7, 5), strict=True)}
    ),
    share=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_padding(op, sizes, share, seed):
    inputs, mask = op.make(seed=seed, **sizes), random_padding(sizes["B"], sizes["T"], share=share, seed=seed)
    expected = assert_specified(op, inputs, mask, torch.float64)
    if op.steps:
        assert_close(op.real(op.generated(inputs, mask), mask), op.real(expected, mask), op.tolerance(torch.float64))


@pytest.mark.slow
@each(takes("block_length"))
@settings(max_examples=40, deadline=None)
@example(steps=300, block_length=1, share=0.2)  # more blocks than are summed at computed_once
@given(steps=st.integers(1, 70), block_length=st.integers(1, 40), share=st.sampled_from([0.0, 0.2, 0.9, 1.0]))
def test_any_block_length(op, steps, block_length, share):
    shortest = 2 if op.name == "prefix_softmax" else 1
    inputs, mask = op.make(T=steps), random_padding(3, steps, share=share)
    assert_specified(op, inputs, mask, torch.float64, block_length=max(block_length, shortest))


@each(takes("bias"))
@EVERY_DTYPE
@PADDED
def test_a_bias_is_added_to_the_scores(op, dtype, padded):
    inputs, mask = op.make(torch.empty(0, dtype=dtype)), random_padding(3, 40, share=0.4) if padded else None
    if padded:
        mask[2] = True
    bias = randn(1, 2, 7, 40, dtype=torch.promote_types(dtype, torch.float32), seed=9)
    assert_specified(op, inputs, mask, dtype, bias)


@each()
@FORMS
def test_padding_is_not_seen_at_any_position(op, form):
    """Where no step is seen the output is 0: of a sentence of padding, and before the first step if causal."""
    inputs, mask = op.make(), mixed_padding(40)
    mask[2] = True
    outputs = op(form, inputs, mask)
    for row in range(2):
        alone = op(form, op.alone(inputs, row, ~mask[row]))
        found = op.real([x[row : row + 1] for x in outputs], mask[row : row + 1])
        unpadded = torch.zeros(1, int((~mask[row]).sum()), dtype=torch.bool)
        assert_close(found, op.real(alone, unpadded), op.tolerance(torch.float64))
    assert all(x.isfinite().all() for x in outputs)
    if op.zero:
        out = op.defined(outputs, mask)[0]
        assert not out[2].any() and not (op.causal and out[0, :, :13].any())
    for dim in (1, 2):
        padded = with_steps(op, inputs, dim)
        for seen in gradients(op.real(outputs, mask), padded) if padded else ():
            assert seen.isfinite().all() and not seen.movedim(dim, 1)[mask].any()


@each(lambda op: op.causal)
@FORMS
def test_no_step_sees_a_later_one(op, form):
    inputs = op.make(B=1, T=150)
    seen = gradients([out[:, :, 70] for out in op(form, inputs)], with_steps(op, inputs, 2))
    assert not any(x[:, :, 71:].any() for x in seen)
    assert any(x[:, :, 70].any() for x in seen) and any(x[:, :, :70].any() for x in seen)


@each(lambda op: op.steps)
@EVERY_DTYPE
@pytest.mark.parametrize("padding", ["none", "late", "anywhere"])
@torch.no_grad()
def test_generation_equals_the_whole_pass(op, dtype, padding):
    """Padding may begin after the first steps."""
    inputs, mask = op.make(torch.empty(0, dtype=dtype), T=150), random_padding(3, 150, share=0.3)
    mask[0, :9] = True
    mask[:, : {"none": 150, "late": 71, "anywhere": 0}[padding]] = False
    given = None if padding == "none" else mask
    outputs, states = zip(*op.in_steps(inputs, given), strict=True)
    found = [torch.cat(parts, dim=2) for parts in zip(*outputs, strict=True)]
    assert found[0].dtype == dtype
    assert_close(op.real(found, mask), op.real(op("fast", inputs, given), mask), op.tolerance(dtype))
    if op.long:
        assert len({tuple(x.shape for x in tensors(state)) for state in states}) == 1
        assert all(x.dtype in (torch.float32, torch.float64) for x in tensors(states[-1]))


@each(drops)
def test_dropout_is_the_same_in_every_form(op):
    """The means and deviations of many equal sentences agree, within six standard errors."""
    rows = 1000
    inputs = [
        x.detach().expand(rows if shape[0] == "B" else len(x), *x.shape[1:])
        for shape, x in zip(op.shapes.split(), op.make(B=1, T=9, N=1), strict=True)
    ]
    torch.manual_seed(0)
    specified, *found = forms(op, inputs, dropout_p=0.5)
    half = [x.bfloat16() for x in op.make(T=9)]
    assert {outputs[0].dtype for outputs in forms(op, half, dropout_p=0.5)} == {torch.bfloat16}
    assert max(x.std(0).max() for x in specified) > 1e-2
    for outputs in found:
        for ours, theirs in zip(outputs, specified, strict=True):
            spread = (ours.var(0) + theirs.var(0)).sqrt()
            assert ((ours.mean(0) - theirs.mean(0)).abs() <= 6 * spread / rows**0.5 + 1e-9).all()
            assert ((ours.std(0) - theirs.std(0)).abs() <= 0.3 * spread + 1e-9).all()


@each(lambda op: op.per_step is not None)
def test_no_tensor_is_larger_than_it_must_be(op):
    """Neither in the square of the length, nor a state for each step."""
    steps = 2048
    inputs = op.make(torch.empty(0), B=1, H=1, T=steps, D=64, E=32, R=64, L=32, S=16)
    with LargestTensor() as largest:
        sum(x.sum() for x in op("fast", inputs, random_padding(1, steps, share=0.1))).backward()
    assert largest.elements <= steps * op.per_step


@pytest.mark.slow
@each(lambda op: op.long)
@pytest.mark.parametrize(
    ("dtype", "bound"),
    [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-3)],
    ids=["fp32", "bf16", "fp16"],
)
@torch.no_grad()
def test_precision_at_100000_steps(op, dtype, bound):
    """Of positive vectors, whose sums grow with every step."""
    inputs = op.make(torch.empty(0, dtype=dtype), B=1, H=1, T=100_000)
    inputs = [x.abs() if x.dim() == 4 else x for x in inputs]
    expected = op("fast", [x.double() for x in inputs])
    for ours, theirs in zip(op("fast", inputs), expected, strict=True):
        assert (ours.double() - theirs).abs().max() < bound * theirs.abs().max()


@each(lambda op: op.options.get("num_landmarks") != 1000)  # the inverse has no bound
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1e4])
def test_finite_at_any_scale(op, scale):
    inputs = [
        (scale * x.detach() if "T" in shape else x).requires_grad_(x.requires_grad)
        for shape, x in zip(op.shapes.split(), op.make(torch.empty(0)), strict=True)
    ]
    for outputs in forms(op, inputs)[1:]:
        assert all(x.isfinite().all() for x in (*outputs, *gradients(outputs, inputs)))

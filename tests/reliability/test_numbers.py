"""The attentions of the papers at numerical extremes: half precision, sizes of inputs, lengths, rows of padding.

tests/modules tests what every attention does there.
"""

import pytest
import torch

from every_attention import EVERY, build, call, in_steps, randn
from numeric import gradients

PAPERS = [each for each in EVERY if each[0].startswith(("luna", "fastformer", "block")) and each[1] != "source"]
EVERY_ATTENTION = pytest.mark.parametrize(("name", "place"), PAPERS, ids=map("-".join, PAPERS))
# For outputs and for gradients, of the largest of each tensor.
HALF = {"bf16": (torch.bfloat16, 0.02, 0.08), "fp16": (torch.float16, 0.0025, 0.012)}
FP32_AND_BF16 = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def all_of(module, place, x, mask=None):
    """The output, and the gradients of the input and of every parameter."""
    out = call(module, place, x, mask)
    return out, gradients(out, x, *module.parameters())


def finite(out, found):
    return all(tensor.isfinite().all() for tensor in (out, *found))


@EVERY_ATTENTION
@pytest.mark.parametrize(("dtype", "output_bound", "bound"), HALF.values(), ids=HALF)
def test_outputs_and_gradients_of_half_precision_stay_near_those_of_fp32(name, place, dtype, output_bound, bound):
    (expected, exact), (out, half) = (
        all_of(build(name, place).to(each), place, randn(120).to(dtype).to(each).requires_grad_())
        for each in (torch.float32, dtype)
    )
    assert (out.float() - expected).abs().max() < output_bound * expected.abs().max()
    names = ["input", *(parameter for parameter, _ in build(name, place).named_parameters())]
    largest = dict(zip(names, (gradient.abs().max() for gradient in exact), strict=True))
    for which, gradient, theirs in zip(names, half, exact, strict=True):
        # That of a bias under a softmax is zero except for rounding, and so it is compared with its weight's.
        size = max(largest[which], largest.get(which.replace(".bias", ".weight"), 0))
        assert (gradient.float() - theirs).abs().max() < bound * max(size, 1e-2 * max(largest.values())), which


@EVERY_ATTENTION
@FP32_AND_BF16
def test_finite_for_inputs_of_any_size(name, place, dtype):
    for scale in (1e-4, 1e-2, 1.0, 1e2, 1e4):
        x = (scale * randn(90)).to(dtype).requires_grad_()
        assert finite(*all_of(build(name, place).to(dtype), place, x)), scale


@EVERY_ATTENTION
def test_finite_in_fp16(name, place):
    # The formulas are of third order in the inputs: from some hundreds on their values exceed fp16's range.
    for scale in (1e-4, 1.0, 10.0):
        assert call(build(name, place).half(), place, (scale * randn(90)).half()).isfinite().all(), scale


@EVERY_ATTENTION
def test_finite_at_every_length(name, place):
    for steps in (1, 2, 3, 63, 64, 65, 1000):
        for batch in (1, 3):
            assert finite(*all_of(build(name, place), place, randn(steps, batch).requires_grad_())), steps


@pytest.mark.slow
@EVERY_ATTENTION
@FP32_AND_BF16
def test_finite_at_100000_steps(name, place, dtype):
    assert finite(*all_of(build(name, place).to(dtype), place, randn(100_000, 1).to(dtype).requires_grad_()))


@EVERY_ATTENTION
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_a_row_of_padding_is_finite_and_does_not_affect_others(name, place, dtype):
    module, x = build(name, place).to(dtype), randn(20).to(dtype).requires_grad_()
    mask = torch.zeros(3, 20, dtype=torch.bool)
    mask[1] = True
    out, found = all_of(module, place, x, mask)
    assert finite(out, found)
    others = call(module, place, x[:, [0, 2]], mask[[0, 2]])
    close = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(out[:, [0, 2]], others, rtol=close, atol=close)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, place in PAPERS if place == "decoder"])
@FP32_AND_BF16
@torch.no_grad()
def test_one_step_at_a_time_equals_the_whole_pass_at_4096_steps(name, dtype):
    module, x = build(name, "decoder").to(dtype), randn(4096, 2).to(dtype)
    whole = call(module, "decoder", x)
    stepped = in_steps(module, x)
    assert (stepped - whole).abs().max() < {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype] * whole.abs().max()

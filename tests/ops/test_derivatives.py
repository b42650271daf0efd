"""Second derivatives, and the transforms of torch.func."""

from functools import partial

import pytest
import torch
from torch.autograd.functional import jacobian
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from attention_op import TransformerXl
from every_op import ATTENTIONS
from fairseq_luna.ops.decay_attention import decay_attention
from fairseq_luna.ops.feature_maps import fourier_features
from fairseq_luna.ops.gated_delta_rule import gated_delta_rule
from fairseq_luna.ops.linear_recurrence import linear_recurrence
from fairseq_luna.ops.padding import Padding
from fairseq_luna.ops.prefix_attention import prefix_attention
from fairseq_luna.ops.short_convolution import short_convolution
from numeric import mixed_padding, randn


def decay_attention_of_logits(q, k, v, logits, **options):
    return decay_attention(q, k, v, -logits.square(), **options)


def gated_delta_rule_of_logits(q, k, v, decays, strengths, **options):
    return gated_delta_rule(q, k, v, -decays.square(), strengths.sigmoid(), **options)


pytestmark = pytest.mark.slow
FP64 = torch.empty(0, dtype=torch.float64)
EVERY_ATTENTION = pytest.mark.parametrize("attention", ATTENTIONS.values(), ids=ATTENTIONS)
# What has a gradient written by hand, and the shapes of its inputs.
BY_HAND = {
    "prefix attention, one block": (prefix_attention, [(2, 2, 7, 3), (2, 2, 7, 3), (2, 2, 7, 4)]),
    "prefix attention, three blocks": (
        lambda *args: prefix_attention(*args, block_length=3),
        [(2, 2, 7, 3), (2, 2, 7, 3), (2, 2, 7, 4)],
    ),
    **{
        f"decay attention, {name}": (
            partial(decay_attention_of_logits, block_length=length),
            [(2, 2, 7, 3), (2, 2, 7, 3), (2, 2, 7, 4), (2, 2, 7)],
        )
        for name, length in (("one block", None), ("three blocks", 3))
    },
    **{
        f"gated delta rule, {name}": (
            partial(gated_delta_rule_of_logits, block_length=length),
            [(2, 2, 7, 3), (2, 2, 7, 3), (2, 2, 7, 4), (2, 2, 7), (2, 2, 7)],
        )
        for name, length in (("one block", None), ("three blocks", 3))
    },
    "steps in another order": (Padding(mixed_padding(7)).put_real_first, [(3, 2, 7, 3)]),
    "convolution": (short_convolution, [(9, 2, 3), (3, 5)]),
    "linear recurrence, looped": (linear_recurrence, [(7, 2, 2), (7, 2, 2)]),
    "linear recurrence, in pairs": (linear_recurrence, [(34, 1, 1), (34, 1, 1)]),
    "sines and cosines": (fourier_features, [(2, 2, 4, 3), (2, 5, 3)]),
}
EVERY_FUNCTION = pytest.mark.parametrize(("function", "shapes"), BY_HAND.values(), ids=BY_HAND)


@pytest.fixture(autouse=True)
def _unfused():
    """torch has no second derivative of its fused attention, and says so."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def total(function):
    """The sum of the squared outputs of ``function``, so that its gradient depends on all of them."""
    return lambda *args: sum(y.square().sum() for y in tree_leaves(function(*args)))


@EVERY_ATTENTION
def test_second_derivatives_are_right(attention, monkeypatch):
    # Finite differences do not see that the gradient of a memory is stopped.
    monkeypatch.setattr(TransformerXl, "arguments", lambda self, inputs: (*inputs[:3], *inputs[1:3], *inputs[3:]))

    def differentiable(*given):
        return tuple(y for y in attention(*given) if y.requires_grad)

    inputs = attention.make(FP64)
    # Some gradients of a GPU are summed in any order.
    differs = 0.0 if inputs[0].device.type == "cpu" else 1e-10
    with torch.device("cpu"):  # where gradgradcheck draws numbers
        assert torch.autograd.gradgradcheck(differentiable, inputs, fast_mode=True, nondet_tol=differs)


@EVERY_ATTENTION
def test_gradients_of_each_case_by_vmap(attention):
    def function(*given):
        return tuple(y for y in attention(*given) if y.is_floating_point())

    inputs = [x.detach() for x in attention.make(FP64)]
    cases = [inputs, [1.1 * x for x in inputs]]
    gradient = torch.func.grad(total(function), argnums=tuple(range(len(inputs))))
    found = torch.vmap(gradient)(*map(torch.stack, zip(*cases, strict=True)))
    for number, case in enumerate(cases):
        torch.testing.assert_close([x[number] for x in found], [*jacobian(total(function), tuple(case))])


@EVERY_FUNCTION
def test_every_second_derivative_of_a_gradient_by_hand(function, shapes):
    inputs = [randn(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    assert torch.autograd.gradgradcheck(function, inputs)
    # The second gradient of a sum of squares depends on the saved tensors alone.
    hessian = torch.autograd.functional.hessian(total(function), tuple(inputs))
    every = tuple(range(len(inputs)))
    found = torch.func.jacrev(torch.func.jacrev(total(function), argnums=every), argnums=every)(*inputs)
    torch.testing.assert_close(found, hessian)


@EVERY_FUNCTION
@pytest.mark.parametrize("place", [0, -1], ids=["in front", "behind"])
def test_any_input_may_be_mapped_at_any_place(function, shapes, place):
    every, inputs = tuple(range(len(shapes))), [randn(*shape, grad=False) for shape in shapes]
    gradient = torch.func.grad(total(function), argnums=every)
    for mapped, shape in enumerate(shapes):
        several = [randn(*shape, seed=seed, grad=False) for seed in (7, 8, 9)]
        cases = [(*inputs[:mapped], one, *inputs[mapped + 1 :]) for one in several]
        given = (*inputs[:mapped], torch.stack(several, dim=place), *inputs[mapped + 1 :])
        dims = tuple(place if number == mapped else None for number in every)
        outputs, found = (torch.vmap(f, in_dims=dims)(*given) for f in (function, gradient))
        torch.testing.assert_close(outputs, torch.stack([function(*case) for case in cases]))
        for number, case in enumerate(cases):
            torch.testing.assert_close([x[number] for x in found], [*jacobian(total(function), case)])


@EVERY_FUNCTION
def test_gradients_by_hand_of_a_compiled_function(function, shapes):
    """torch 2.11 drops the gradient of an output that an in-place operator wrote: docs/reliability.md."""
    inputs = [randn(*shape, seed=seed).detach().requires_grad_() for seed, shape in enumerate(shapes)]
    gradient = torch.randn_like(function(*inputs))
    expected = torch.autograd.grad(function(*inputs), inputs, gradient)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(*inputs), inputs, gradient), expected)

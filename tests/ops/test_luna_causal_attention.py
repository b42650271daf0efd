import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from every_op import OPS
from fairseq_luna.ops.luna_causal_attention import naive, pack_scores, state_after
from fairseq_luna.ops.luna_causal_attention.shared import pack_activation
from numeric import gradients, mixed_padding

ACTIVATIONS = {"softplus": OPS["luna"], "elu": OPS["luna-elu"]}


def test_tied_keys_and_values_have_one_state():
    class Products(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten.bmm.default
            return func(*args, **(kwargs or {}))

    found = []
    for name in ("luna-tied", "luna"):
        with Products() as products:
            OPS[name]("fast", OPS[name].make(T=150))
        found.append(products.count)
    # The product, and the sum over the blocks.
    assert found[1] - found[0] == 2


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.01), (torch.float16, 0.002)], ids=["bf16", "fp16"])
def test_gradients_of_half_precision_stay_near_the_exact_ones(dtype, bound, activation):
    op = ACTIVATIONS[activation]
    args = op.make(torch.empty(0, dtype=dtype), T=65, D=16)
    exact = [x.detach().double().requires_grad_() for x in args]
    expected, found = gradients(op("naive", exact)[0], *exact), gradients(op("fast", args)[0], *args)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.double() - theirs).abs().max() < bound * theirs.abs().max()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_state_of_a_whole_sequence_is_that_after_its_steps(activation):
    op, mask = ACTIVATIONS[activation], mixed_padding(40)
    _, k, v, pq, pk = inputs = op.make()
    _, state = op.step(inputs, op.start(inputs), mask)
    whole = state_after(k, v, pack_scores(pq, pk), tied=False, activation=activation, padding_mask=mask)
    torch.testing.assert_close(tuple(whole), tuple(state))


@pytest.mark.parametrize("form", ["naive", "fast"])
def test_an_unknown_activation_is_refused(form):
    op = OPS["luna"]._replace(options={"activation": "relu"})
    with pytest.raises(ValueError, match="activation relu: choose one of softplus, elu"):
        op(form, op.make())


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_the_formula_and_are_never_negative(name):
    scores = (torch.arange(-6000, 6001, dtype=torch.float64) / 100).requires_grad_()
    actual, expected = pack_activation(name)(scores), naive.positive(name, scores)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(actual, scores), gradients(expected, scores))
    weights = pack_activation(name)(torch.linspace(-1000, 1000, 100_001, dtype=torch.float64))
    assert (weights >= 0).all() and torch.isfinite(weights).all()


def test_elu_keeps_its_digits_in_half_precision():
    scores = torch.arange(-12.0, 3.0, dtype=torch.bfloat16)
    exact = torch.where(scores < 0, scores.float().exp(), scores.float() + 1)
    weights = pack_activation("elu")(scores)
    assert weights.dtype == torch.bfloat16
    torch.testing.assert_close(weights.float(), exact, rtol=2**-8, atol=0)

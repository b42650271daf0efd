import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from every_op import OPS
from fairseq_luna.ops.luna_causal_attention import pack_scores, state_after
from fairseq_luna.ops.luna_causal_attention.torch_form import pack_activation, positive_reference
from numeric import gradients, mixed_padding

ACTIVATIONS = {"softplus": OPS["luna"], "elu": OPS["luna-elu"]}


def test_tied_keys_and_values_have_one_state():
    multiplications = []
    for name in ("luna-tied", "luna"):
        with FlopCounterMode(display=False) as counter:
            OPS[name]("fast", OPS[name].make(T=150))
        multiplications.append(counter.get_total_flops())
    assert multiplications[0] < multiplications[1]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_state_of_a_whole_sequence_is_that_after_its_steps(activation):
    op, mask = ACTIVATIONS[activation], mixed_padding(40)
    _, k, v, pq, pk = inputs = op.make()
    *_, (_, state) = op.in_steps(inputs, mask)
    whole = state_after(k, v, pack_scores(pq, pk), tied=False, activation=activation, padding=mask)
    torch.testing.assert_close(tuple(whole), tuple(state))


@pytest.mark.parametrize("form", ["naive", "fast"])
def test_an_unknown_activation_is_refused(form):
    op = OPS["luna"]._replace(options={"activation": "relu"})
    with pytest.raises(ValueError, match="activation relu: choose one of softplus, elu"):
        op(form, op.make())


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_the_formula_and_are_never_negative(name):
    scores = (torch.arange(-6000, 6001, dtype=torch.float64) / 100).requires_grad_()
    actual, expected = pack_activation(name)(scores), positive_reference(name, scores)
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

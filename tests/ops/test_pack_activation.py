import pytest
import torch

from fairseq_luna.ops.luna_causal_attention.naive import positive
from fairseq_luna.ops.pack_activation import PACK_ACTIVATIONS, pack_activation
from numeric import gradients


@pytest.mark.parametrize("name", PACK_ACTIVATIONS)
def test_one_at_zero_and_never_negative(name):
    scores = torch.linspace(-1000, 1000, 100_001, dtype=torch.float64)
    weights = pack_activation(name)(scores)
    assert pack_activation(name)(torch.zeros(())).item() == pytest.approx(1.0)
    assert (weights >= 0).all() and torch.isfinite(weights).all()


@pytest.mark.parametrize("name", PACK_ACTIVATIONS)
def test_equals_the_formula(name):
    scores = (torch.arange(-6000, 6001, dtype=torch.float64) / 100).requires_grad_()
    actual, expected = pack_activation(name)(scores), positive(name, scores)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(actual, scores), gradients(expected, scores))


def test_softplus_known_values():
    weights = pack_activation("softplus")(torch.tensor([-1.0, 0.0, 1.0, 3.0], dtype=torch.float64))
    expected = torch.tensor([1.5, 2.0, 3.0, 9.0], dtype=torch.float64).log2()
    torch.testing.assert_close(weights, expected)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="--luna-activation gelu: choose one of softplus, elu"):
        pack_activation("gelu")

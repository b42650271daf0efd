import pytest
import torch

from fairseq_luna.ops.luna_causal_attention.naive import positive
from fairseq_luna.ops.pack_activation import PACK_ACTIVATIONS, pack_activation


@pytest.mark.parametrize("name", PACK_ACTIVATIONS)
def test_one_at_zero_and_never_negative(name):
    scores = torch.linspace(-1000, 1000, 100_001, dtype=torch.float64)
    weights = pack_activation(name)(scores)
    assert pack_activation(name)(torch.zeros(())).item() == pytest.approx(1.0)
    assert (weights >= 0).all() and torch.isfinite(weights).all()


@pytest.mark.parametrize("name", PACK_ACTIVATIONS)
def test_equals_the_formula(name):
    scores = torch.linspace(-60, 60, 12_001, dtype=torch.float64)
    torch.testing.assert_close(pack_activation(name)(scores), positive(name, scores), rtol=1e-12, atol=1e-12)


def test_softplus_known_values():
    weights = pack_activation("softplus")(torch.tensor([-1.0, 0.0, 1.0, 3.0], dtype=torch.float64))
    expected = torch.tensor([1.5, 2.0, 3.0, 9.0], dtype=torch.float64).log2()
    torch.testing.assert_close(weights, expected)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="--luna-activation gelu: choose one of softplus, elu"):
        pack_activation("gelu")

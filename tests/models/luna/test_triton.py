"""``--luna-kernel triton`` in a training, in Triton's interpreter."""

import importlib.util
import warnings

import pytest
import torch

from commands import APOLLO, FAMILIES, train
from tiny_training import trained_weights

ONE_LAYER = ("--encoder-layers=1", "--decoder-layers=1")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs pip install triton")
@pytest.mark.parametrize("flags", [(), ("--untie-luna-kv", "--luna-activation=elu")], ids=["tied", "untied"])
def test_trains_as_the_chunked_form(flags, tiny_data, tmp_path):
    flags = (*FAMILIES["luna"], *APOLLO, "--max-update=2", "--dropout=0", "--disable-validation", *ONE_LAYER, *flags)
    expected = trained_weights(train(tiny_data, tmp_path / "torch", *flags))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Luna's Triton kernels are left out")
        found = trained_weights(train(tiny_data, tmp_path / "triton", *flags, "--luna-kernel=triton"))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert not all(torch.equal(found[name], expected[name]) for name in found)

"""What every attention makes of its padding mask when it is used alone."""

import pytest
import torch
from functorch.compile import aot_module
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from every_attention import build, call, every, randn

STEPS, BATCH = 12, 3
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
# Neither moves torch's version counter.
WRITES = {
    "data": lambda mask: mask.data.logical_not_(),
    "numpy": lambda mask: mask.numpy().__setitem__(..., ~mask.numpy()),
}


def some_padding():
    mask = torch.zeros(BATCH, STEPS, dtype=torch.bool)
    mask[0, 3:] = mask[1, :5] = mask[2, 5:9] = True
    return mask


def attending(name, place):
    """The attention as a function of its mask alone."""
    module, x, source = build(name, place), randn(STEPS, BATCH), randn(STEPS, BATCH, seed=1)
    return lambda mask: call(module, place, x, mask, source)


@every()
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@torch.no_grad()
def test_a_mask_that_was_written_to_is_read_again(name, place, write):
    attend, mask = attending(name, place), some_padding()
    before = attend(mask)
    write(mask)
    after = attend(mask)
    assert after.equal(attend(~some_padding()))
    assert not after.isclose(before, **CLOSE).all()


@every()
@torch.no_grad()
def test_a_graph_reads_its_mask(name, place):
    attend = attending(name, place)
    attend(mask := some_padding())
    graph = make_fx(attend)(mask)
    torch.testing.assert_close(graph(~mask), attend(~mask), **CLOSE)


@pytest.mark.parametrize(("name", "place"), [("luna", "decoder"), ("block", "encoder"), ("sparse", "decoder")])
def test_ahead_of_time_autograd_after_a_call(name, place):
    module, x, mask = build(name, place), randn(STEPS, BATCH), some_padding()
    expected = module(x, padding_mask=mask)
    traced = aot_module(module, lambda graph, _: graph)
    torch.testing.assert_close(traced(x, padding_mask=mask), expected, **CLOSE)
    torch.testing.assert_close(aot_module(module, lambda graph, _: graph)(x), module(x), **CLOSE)


@every()
@torch.no_grad()
def test_fake_tensors_stay_in_their_mode(name, place):
    attend, mask = attending(name, place), some_padding()
    expected = attend(mask), attend(None)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert attend(mode.from_tensor(mask)).shape == attend(mask).shape == attend(None).shape
    assert attend(mask).equal(expected[0]) and attend(None).equal(expected[1])

"""A state dict decides all that an attention computes, wherever the attention was made."""

import copy

import pytest
import torch

from every_attention import build, call, every, inputs


def out_of(module, place):
    x, source = inputs(module)
    return call(module, place, x, source=source)


@every()
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@torch.no_grad()
def test_a_loaded_attention_computes_what_the_saved_one_does(name, place, training):
    saved, loaded = (build(name, place, seed).train(training) for seed in (0, 1))
    expected = out_of(saved, place)
    assert not out_of(loaded, place).equal(expected)
    loaded.load_state_dict(saved.state_dict())
    assert out_of(loaded, place).equal(expected)


@every()
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@torch.no_grad()
def test_an_attention_made_without_numbers_is_filled_by_loading(name, place, training):
    saved = build(name, place).train(training)
    with torch.device("meta"):
        empty = build(name, place).train(training)
    assert all(tensor.is_meta for tensor in (*empty.parameters(), *empty.buffers()))
    allocated = copy.deepcopy(empty).to_empty(device=torch.get_default_device())
    allocated.load_state_dict(saved.state_dict())
    empty.load_state_dict(saved.state_dict(), assign=True)
    for loaded in (allocated, empty):
        assert out_of(loaded, place).equal(out_of(saved, place))

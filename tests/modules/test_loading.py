"""A state dict decides all that an attention computes, wherever the attention was made."""

import copy

import pytest
import torch

from modules.every_attention import BUILD, EVERY_ATTENTION, call, inputs


def made(name, place, seed):
    torch.manual_seed(seed)
    return BUILD[name, place]()


@EVERY_ATTENTION
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@torch.no_grad()
def test_a_loaded_attention_computes_what_the_saved_one_does(name, place, training):
    saved, loaded = (made(name, place, seed).train(training) for seed in (0, 1))
    expected, args = call(saved, name, place, *inputs()), (name, place, *inputs())
    assert not call(loaded, *args).equal(expected)
    loaded.load_state_dict(saved.state_dict())
    assert call(loaded, *args).equal(expected)


@EVERY_ATTENTION
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@torch.no_grad()
def test_an_attention_made_without_numbers_is_filled_by_loading(name, place, training):
    saved, args = made(name, place, 0).train(training), (name, place, *inputs())
    with torch.device("meta"):
        empty = BUILD[name, place]().train(training)
    assert all(tensor.is_meta for tensor in (*empty.parameters(), *empty.buffers()))
    allocated = copy.deepcopy(empty).to_empty(device="cpu")
    allocated.load_state_dict(saved.state_dict())
    empty.load_state_dict(saved.state_dict(), assign=True)
    for loaded in (allocated, empty):
        assert call(loaded, *args).equal(call(saved, *args))

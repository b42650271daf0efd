"""Generation states of modules and of their copies."""

import copy
import pickle

import pytest
import torch

from modules.every_attention import BUILD, build, call, call_in_steps, inputs

STATEFUL = [(name, place) for name, place in BUILD if place != "encoder"]


@pytest.mark.parametrize(("name", "place"), STATEFUL, ids=map("-".join, STATEFUL))
@torch.no_grad()
def test_copies_may_be_stepped_with_one_state(name, place):
    module = build(name, place).eval()
    modules = [module, copy.deepcopy(module), copy.copy(module), pickle.loads(pickle.dumps(module))]
    read = [inputs(seed) for seed in range(len(modules))]
    expected = [call(module, name, place, *of_module) for of_module in read]
    together = {}
    steps = [
        call_in_steps(each, name, place, *of_module, together) for each, of_module in zip(modules, read, strict=True)
    ]
    for outs, whole in zip(zip(*zip(*steps, strict=True), strict=True), expected, strict=True):
        torch.testing.assert_close(torch.cat(outs), whole, rtol=1e-4, atol=1e-5)

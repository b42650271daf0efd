"""Generation states of modules and of their copies."""

import copy
import pickle

import torch

from every_attention import build, call, call_in_steps, every, inputs
from fairseq_luna.modules.generation_state import GenerationState


@every("decoder", "source")
@torch.no_grad()
def test_copies_may_be_stepped_with_one_state(name, place):
    module = build(name, place)
    modules = [module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    if not any(isinstance(child, GenerationState) for child in module.children()):
        modules.append(copy.copy(module))  # it shares its children, and so their states
    read = [inputs(module, seed=2 * number) for number in range(len(modules))]
    expected = [call(module, place, x, source=source) for x, source in read]
    together = {}
    steps = [call_in_steps(each, place, *of_module, together) for each, of_module in zip(modules, read, strict=True)]
    for outs, whole in zip(zip(*zip(*steps, strict=True), strict=True), expected, strict=True):
        torch.testing.assert_close(torch.cat(outs), whole, rtol=1e-4, atol=1e-5)

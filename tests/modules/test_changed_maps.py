"""Every attention calls the linear maps that are more than their weights: adapters, pruning and profilers need it."""

from contextlib import ExitStack

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as of_all
from torch.nn.utils import parametrize

from every_attention import WITH_OPTIONS, build, call, every, in_steps, inputs
from fairseq_luna.modules.projection import affine_of, project_together

pytestmark = pytest.mark.slow


def linear_maps(module):
    return {name: child for name, child in module.named_modules() if type(child) is nn.Linear}


def trained(module, place):
    """The output of a whole pass whose gradients are computed."""
    x, source = (each.requires_grad_() for each in inputs(module))
    out = call(module.train(), place, x, source=source)
    out.square().sum().backward()
    return out


@torch.no_grad()
def generated(module, place):
    """The output without gradients, in decoders step by step."""
    module.eval()
    x, source = inputs(module)
    if place == "encoder":
        return call(module, place, x)
    return in_steps(module, x, place, source)


EVERY_RUN = pytest.mark.parametrize("run", [trained, generated])


class Tripled(nn.Module):
    def forward(self, weight):
        return 3 * weight


class Adapted(nn.Linear):
    """A linear map and what is added to it, as in LoRA."""

    def forward(self, x):
        return super().forward(x) + 2 * F.linear(x, self.weight)


class Wrapper(nn.Module):
    """A module without a weight."""

    def __init__(self, linear):
        super().__init__()
        self.wrapped = Adapted(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self.wrapped.load_state_dict(linear.state_dict())

    def forward(self, x):
        return self.wrapped(x)


def with_forward(linear):
    linear.forward = lambda x: F.linear(x, 3 * linear.weight, linear.bias)


# What makes y = 3 W x + b of a linear map y = W x + b.
CHANGES = {
    "forward of the instance": with_forward,
    "hook before": lambda linear: linear.register_forward_pre_hook(lambda _, args: 3 * args[0]),
    "hook after": lambda linear: linear.register_forward_hook(
        lambda linear, args, out: out + 2 * (out if linear.bias is None else out - linear.bias)
    ),
    "parametrization": lambda linear: parametrize.register_parametrization(linear, "weight", Tripled()),
    "subclass": lambda linear: setattr(linear, "__class__", Adapted),
    "wrapper": Wrapper,
}


@every(also=WITH_OPTIONS)
@EVERY_RUN
def test_changed_maps_are_called(name, place, run):
    module = build(name, place)
    for linear in linear_maps(module).values():
        linear.weight.data *= 3
    expected = run(module, place)
    assert (expected - run(build(name, place), place)).abs().max() > 1e-2
    for change in CHANGES.values():
        changed = build(name, place)
        for map_name, linear in linear_maps(changed).items():
            result = change(linear)
            if isinstance(result, Wrapper):
                changed.set_submodule(map_name, result)
        torch.testing.assert_close(run(changed, place), expected, rtol=1e-3, atol=1e-4)


HOOKS = {
    "before": (nn.Module.register_forward_pre_hook, of_all.register_module_forward_pre_hook),
    "after": (nn.Module.register_forward_hook, of_all.register_module_forward_hook),
    "before backward": (nn.Module.register_full_backward_pre_hook, of_all.register_module_full_backward_pre_hook),
    "backward": (nn.Module.register_full_backward_hook, of_all.register_module_full_backward_hook),
}


@every()
@pytest.mark.parametrize("kind", HOOKS)
def test_every_hook_is_called(name, place, kind):
    module, seen = build(name, place), set()
    maps, (own, of_all_modules) = {*linear_maps(module).values()}, HOOKS[kind]

    def hook(called, *_):
        seen.add(called)

    for handles in ((own(each, hook) for each in maps), (of_all_modules(hook) for _ in range(1))):
        with ExitStack() as stack:
            for handle in handles:
                stack.callback(handle.remove)
            trained(module, place)
            assert seen >= maps
            seen.clear()
            generated(module, place)
            assert seen >= maps or "backward" in kind


def test_a_plain_map_is_taken_apart_and_two_are_one_product():
    one, other = nn.Linear(4, 6), nn.Linear(4, 6)
    assert affine_of(one) == (one.weight, one.bias)
    q, k = project_together(torch.ones(2, 4), one, other)
    assert q._base is k._base is not None


def test_a_weight_that_is_made_of_other_tensors_is_not_taken_apart():
    """As those of quantisation libraries and of parallel training, which only linear maps may know."""

    class Packed(Tensor):
        def __tensor_flatten__(self):
            raise NotImplementedError

    linear = nn.Linear(4, 6)
    linear.weight = nn.Parameter(torch.ones(6, 4).as_subclass(Packed))
    assert affine_of(linear) is None


def test_maps_with_and_without_bias_are_not_one_product():
    one, other = nn.Linear(4, 6, bias=False), nn.Linear(4, 6)
    for maps in ((one, other), (other, one)):
        x = torch.ones(2, 4)
        torch.testing.assert_close(project_together(x, *maps), tuple(each(x) for each in maps))

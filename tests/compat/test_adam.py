"""fairseq's Adam in multi-tensor calls: the same bits, and what is left to fairseq."""

import copy
import inspect
import itertools
from argparse import Namespace

import pytest
import torch
from fairseq.optim import adam as fairseq_adam
from fairseq.optim.adam import Adam
from torch import nn
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_luna.compat import PATCHES
from fairseq_luna.optim import tensor_lists

pytestmark = pytest.mark.usefixtures("as_on_a_gpu")
SHAPES = [(6, 4), (4,), (), (5, 3), (0,), (2, 3, 4), (1, 7)]
TRANSPOSED, UNUSED, FROZEN = 3, {0: (1, 2, 3), 2: (3,)}, 5
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}
GROUPS = {
    "one group": [{}],
    "decay": [{"weight_decay": 0.3, "betas": (0.5, 0.7)}],
    "two groups": [{"weight_decay": 0.1}, {"lr": 0.5, "eps": 0.1, "betas": (0.0, 0.9)}],
    "amsgrad": [{"amsgrad": True, "weight_decay": 0.1}],
}
fairseqs_step = inspect.unwrap(Adam.step)


def our_step(optimizer, closure=None):
    return Adam.step(optimizer, closure)


def problem(dtype, groups):
    """Parameters, some of which are not contiguous, and fairseq's Adam of them in ``groups``."""
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]
    values[TRANSPOSED] = values[TRANSPOSED].t()
    params = [nn.Parameter(value) for value in values]
    params[FROZEN].requires_grad_(False)
    own = [{"params": params[i :: len(groups)], **group} for i, group in enumerate(groups)]
    return params, Adam(own, lr=0.1)


def gradients(params, number):
    """Sets the gradients of a step; no gradient where the parameter is not used, and one with other strides."""
    generator = torch.Generator().manual_seed(number)
    for i, p in enumerate(params):
        p.grad = None
        if p.requires_grad and number not in UNUSED.get(i, ()):
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)
    params[0].grad = None if params[0].grad is None else params[0].grad.t().contiguous().t()


def bits(value):
    """A copy that equals another one if dtype, strides and every bit are the same."""
    if not torch.is_tensor(value):
        return value
    x = value.detach()
    return x.dtype, x.shape, x.stride(), x.contiguous().reshape(-1).view(torch.uint8).tolist()


def numbers(params, optimizer):
    """The bits of everything that a step reads or changes."""
    states = [{name: bits(value) for name, value in optimizer.state.get(p, {}).items()} for p in params]
    return [(bits(p), bits(p.grad), state) for p, state in zip(params, states, strict=True)]


def resumed(dtype, groups, params, optimizer):
    """Both once more, from a state dict, for which torch casts the state of half precision to half precision."""
    values, state = [p.detach().clone() for p in params], copy.deepcopy(optimizer.state_dict())
    params, optimizer = problem(dtype, groups)
    for p, value in zip(params, values, strict=True):
        p.data.copy_(value)
    optimizer.load_state_dict(state)
    return params, optimizer


def trained(dtype, groups, *steps):
    """All numbers after each of ``steps``, the last three of which go on from a state dict."""
    params, optimizer = problem(dtype, groups)
    found = []
    for number, step in enumerate(steps):
        if number == len(steps) - 3:
            params, optimizer = resumed(dtype, groups, params, optimizer)
        gradients(params, number)
        assert step(optimizer) is None
        found.append(numbers(params, optimizer))
    return found


@pytest.mark.parametrize("numel", [1, 20, 2**20])
@pytest.mark.parametrize(("groups", "dtype"), itertools.product(GROUPS, DTYPES))
def test_steps_and_state_are_fairseqs_bit_for_bit(groups, dtype, numel, monkeypatch):
    """Also if the other one wrote the state. With gradients that are missing in some steps, and lists of any size."""
    monkeypatch.setattr(tensor_lists, "CACHE_NUMEL", numel)
    ours, theirs = [our_step] * 3, [fairseqs_step] * 3
    expected = trained(DTYPES[dtype], GROUPS[groups], *theirs, *theirs)
    for steps in ((*ours, *ours), (*ours, *theirs), (*theirs, *ours)):
        assert trained(DTYPES[dtype], GROUPS[groups], *steps) == expected


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 0.0, 1e-30, 1e30])
def test_numbers_that_are_not_finite_or_extreme(value):
    def after(step):
        params, optimizer = problem(torch.float32, GROUPS["decay"])
        for number in range(2):
            gradients(params, number)
            params[1].grad.mul_(value)
            params[3].grad.fill_(value)
            step(optimizer)
        return numbers(params, optimizer)

    assert after(our_step) == after(fairseqs_step)


def sparse(params):
    params[2].grad = params[2].grad.to_sparse()


def in_two_places(params):
    params[1] = params[0]


UNUSUAL = {
    "sparse": sparse,
    "in two places": in_two_places,
    "the only one": lambda params: params.__delitem__(slice(1)),
}


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
@pytest.mark.parametrize("change", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_unusual_is_left_to_fairseq(change):
    def after(step):
        params = [nn.Parameter(torch.arange(1.0, 4) + i) for i in range(3)]
        for p in params:
            p.grad = p.detach() / 3
        change(params)
        optimizer = Adam(params, weight_decay=0.1)
        for _ in range(2):
            try:
                step(optimizer)
            except RuntimeError as error:
                return str(error), [bits(p) for p in params]
        return numbers(params, optimizer)

    assert after(our_step) == after(fairseqs_step)


class MultiTensorCalls(TorchDispatchMode):
    """The number of tensors of each multi-tensor call while it is entered."""

    def __init__(self):
        super().__init__()
        self.tensors = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "_foreach" in func.name():
            self.tensors.append(len(args[0]))
        return func(*args, **(kwargs or {}))


def calls_of_the_second_step(change):
    """After ``change`` of the parameters' gradients."""
    params = [nn.Parameter(torch.empty(shape, device="meta")) for shape in ((3, 2), (4,), (5, 1), (2, 2))]
    optimizer = Adam(params, weight_decay=0.1)
    for p in params:
        p.grad = torch.empty_like(p)
    optimizer.step()
    change(params)
    with MultiTensorCalls() as calls:
        optimizer.step()
    return calls.tensors


def test_a_gradient_of_another_layout_has_calls_of_its_own():
    """On a GPU it would make the call a loop over all tensors."""

    def transposed(params):
        params[0].grad = torch.empty(2, 3, device="meta").t()

    assert calls_of_the_second_step(lambda params: None) == [4] * 8
    assert calls_of_the_second_step(transposed) == [1] * 8 + [3] * 8


def test_the_only_gradient_is_left_to_fairseq():
    """A kernel of one tensor is one launch for any size."""

    def only_one(params):
        for p in params[1:]:
            p.grad = None

    assert calls_of_the_second_step(only_one) == []


def test_a_cpu_is_left_to_fairseq(monkeypatch):
    """Where multi-tensor calls are loops, they are slower for large tensors."""
    monkeypatch.undo()
    params, optimizer = problem(torch.float32, GROUPS["decay"])
    gradients(params, 0)
    with profile() as profiled:
        optimizer.step()
    assert not [event.key for event in profiled.key_averages() if "foreach" in event.key]


def test_a_closure_is_called_once_and_its_gradients_are_used():
    def after(step, change):
        params = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))]
        calls = []

        def closure():
            calls.append(None)
            for p in params:
                p.grad = torch.full_like(p, 0.5)
            change(params)
            return "loss"

        assert step(Adam(params), closure) == "loss"
        assert len(calls) == 1
        return [bits(p) for p in params]

    for change in (lambda params: None, lambda params: setattr(params[1], "grad", None)):
        assert after(our_step, change) == after(fairseqs_step, change)


def test_hooks_of_torch_are_called_once():
    params, calls = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))], []
    optimizer = Adam(params)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert calls == ["before", "after"]


def test_apex_is_left_alone(monkeypatch):
    steps = []

    class Fused(torch.optim.SGD):
        def __init__(self, params, *, use_fp16_stats, lr, **_):
            super().__init__(params, lr=lr)

        def step(self, closure=None):
            steps.append(closure)

    monkeypatch.setattr(fairseq_adam, "get_fused_adam_class", lambda: Fused)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Adam, "step", lambda *_: pytest.fail("not apex's"))
    params = [nn.Parameter(torch.ones(2))]
    cfg = Namespace(lr=[0.1], adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0.0, fp16_adam_stats=False)
    fairseq_adam.FairseqAdam(cfg, params).step()
    assert steps == [None]


def test_the_probe_finds_the_patch_after_an_adam_was_made():
    """torch wraps the method once more when the first one is made."""
    Adam([nn.Parameter(torch.ones(1))])
    assert not PATCHES["adam"].is_needed()

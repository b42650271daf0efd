"""Where a multi-tensor call is a few kernels, Apollo makes the same number of calls for any number of tensors."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_luna.optim import apollo_update, tensor_lists
from fairseq_luna.optim.apollo import Apollo
from optim.apollo_runs import SHAPES, assert_same, random_problem, run
from variants import APOLLO

EVERY_MODE = pytest.mark.parametrize("options", APOLLO.values(), ids=APOLLO)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class CountedCalls(TorchDispatchMode):
    """Counts operators that compute: neither views nor allocations."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += not (func.is_view or "empty" in func.name() or "split" in func.name() or "detach" in func.name())
        return func(*args, **(kwargs or {}))


def calls_of_a_step(tensors, dtype, options):
    params = [nn.Parameter(torch.empty(3, 2, device="meta", dtype=dtype)) for _ in range(tensors)]
    optimizer = Apollo(params, lr=0.1, **options)
    for _ in range(2):
        for p in params:
            p.grad = torch.empty_like(p)
        with CountedCalls() as counted:
            optimizer.step()
    return counted.calls


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@EVERY_MODE
def test_calls_do_not_grow_with_the_number_of_tensors(options, dtype):
    few, many = calls_of_a_step(2, dtype, options), calls_of_a_step(12, dtype, options)
    assert few == many <= 60


@EVERY_MODE
def test_no_multi_tensor_call_mixes_dtypes_or_shapes(options, monkeypatch):
    """Either would make the call a loop over the tensors on a GPU."""

    class Checked(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            lists = [arg for arg in args if isinstance(arg, list | tuple) and arg and isinstance(arg[0], torch.Tensor)]
            if "_foreach" in func.name() and len(lists) > 1:
                for tensors in zip(*lists, strict=True):
                    assert len({x.shape for x in tensors}) == 1, func
                    assert "copy" in func.name() or len({x.dtype for x in tensors}) == 1, func
            return func(*args, **(kwargs or {}))

    params = [nn.Parameter(torch.empty(s, device="meta", dtype=torch.float16)) for s in SHAPES]
    optimizer = Apollo(params, lr=0.1, **options)
    for p in params:
        p.grad = torch.empty_like(p)
    with Checked():
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["fp64", "bf16"])
@EVERY_MODE
def test_equals_the_form_for_a_cpu(options, dtype, monkeypatch):
    init, grads = random_problem(dtype=dtype)
    expected = run(init, grads, lr=0.02, **options)
    for module in (tensor_lists, apollo_update):
        monkeypatch.setattr(module, "has_multi_tensor_kernels", lambda device: True)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 0.01, "atol": 0.01}
    assert_same(run(init, grads, lr=0.02, **options), expected, **tolerance)

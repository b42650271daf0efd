"""Everything on devices that compute nothing: meta tensors, and fake CUDA tensors where there are any: make check-cuda.

A new op is a line in ``helpers/every_op.py``, a new family one in ``helpers/variants.py``.
"""

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from every_op import ATTENTIONS, SPECIFICATIONS
from fairseq_luna.optim.apollo import Apollo
from harness.devices import Precision, Shape, build, run_apollo, run_model
from harness.watch import Watch, check
from readers import EVERY_READER, POOLINGS
from variants import APOLLO, VARIANTS

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device, not even a fake one")
EVERY_DEVICE = pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=on_cuda)])

MODELS = VARIANTS | {
    f"reader-{name}": {**flags, "max_positions": 512, "pooling": "attention"} for name, flags in EVERY_READER.items()
}
MODELS |= {f"reader-luna-{pooling}": {**MODELS["reader-luna"], "pooling": pooling} for pooling in POOLINGS[:-1]}
HALVES = (torch.float16, torch.bfloat16)
PADDED = Shape(4, 7, 9, True)
OTHERS = (Shape(3, 7, 9, False), Shape(2, 40, 45, True), Shape(2, 300, 260, False), Shape(3, 300, 260, True))
# On meta tensors there is no autocast.
RUNS = {
    "meta": [(PADDED, Precision(torch.bfloat16))],
    "cuda": [
        (shape, precision)
        for shape in (PADDED, *OTHERS)
        for precision in (*map(Precision, (torch.float32, *HALVES)), *(Precision(torch.float32, x) for x in HALVES))
    ],
}
# bp's specification walks the tree of the real steps, whose number a device without data cannot say.
OPS = ATTENTIONS | {
    f"{name}-specification": call for name, call in SPECIFICATIONS.items() if not name.startswith("bp-")
}


@pytest.mark.parametrize("attention", OPS.values(), ids=OPS)
def test_ops(attention, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device_type: False)
    with Watch(padded=True, shortest=1):
        out = attention(*attention.make(torch.empty(0, device="meta")))
        sum(x.sum() for x in tree_leaves(out) if isinstance(x, Tensor) and x.requires_grad).backward()
    check({"output": out})


@EVERY_DEVICE
@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_on_the_device(name, device):
    model = build(**MODELS[name])
    for shape, precision in RUNS[device]:
        run_model(model, device, shape, precision)


@EVERY_DEVICE
@pytest.mark.parametrize("mode", APOLLO)
def test_apollo_stays_on_the_device(mode, device):
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    for dtype in (torch.float32, *HALVES):
        run_apollo(model, device, dtype, **APOLLO[mode])


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_optimizer_state_of_a_checkpoint_follows_its_parameters(dtype):
    on_cpu, on_meta = (nn.Parameter(torch.ones(2, device=device, dtype=dtype)) for device in ("cpu", "meta"))
    saving, loading = Apollo([on_cpu], lr=0.1), Apollo([on_meta], lr=0.1)
    on_cpu.grad = torch.ones_like(on_cpu)
    saving.step()
    loading.load_state_dict(saving.state_dict())
    assert {x.device.type for x in tree_leaves(loading.state_dict()["state"]) if isinstance(x, Tensor)} == {"meta"}


def test_faults_are_found():
    with Watch(padded=True, shortest=3), pytest.raises(AssertionError, match=r"aten\.mm\.default of cpu and meta"):
        torch.ones(2, 2, device="meta") + torch.ones(())
        torch.ones(2, 2, device="meta") @ torch.ones(2, 2)
    with FakeTensorMode(), Watch(padded=True, shortest=3):
        words = torch.empty(2, 7, dtype=torch.int64, device="cuda")
        assert words.eq(1).any() and words.sum().item() == 3
        check({"logits": words.half(), "loss": words.sum()}, torch.float16)
        for results in ({"logits": words}, {"loss": words.cpu()}, {"gradients": {"w": None}}):
            with pytest.raises(AssertionError):
                check(results, torch.float16)
    for read in (torch.Tensor.item, torch.Tensor.cpu):
        with FakeTensorMode(), Watch(alone=True), pytest.raises(AssertionError):
            read(torch.ones(1, device="cuda"))

"""Every model and Apollo on a CUDA device that computes nothing, where there is one: make check-cuda.

A fault is a tensor on the wrong device, a missing gradient, logits of another dtype or an exception.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from harness.fake_cuda import Precision, Shape, build, run_apollo, run_model
from harness.watch import Watch, faults
from variants import APOLLO, READERS, VARIANTS

TEXTS = {"max_positions": 512}
MODELS = {**VARIANTS, "classifier": {"family": "block_pyramid_classifier", **TEXTS}}
MODELS |= {f"reader-{name}": {**flags, **TEXTS} for name, flags in READERS.items()}
SHAPES = [Shape(3, 7, 9, False), Shape(4, 7, 9, True), Shape(2, 40, 45, True), Shape(2, 300, 260, False)]
SHAPES += [Shape(3, 300, 260, True)]
HALVES = (torch.float16, torch.bfloat16)
PRECISIONS = [*map(Precision, (torch.float32, *HALVES)), *(Precision(torch.float32, half) for half in HALVES)]
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device, not even a fake one")


@on_cuda
@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_on_the_device(name):
    model = build(**MODELS[name])
    assert [fault for shape in SHAPES for precision in PRECISIONS for fault in run_model(model, shape, precision)] == []


@on_cuda
@pytest.mark.parametrize("mode", APOLLO)
def test_apollo_stays_on_the_device(mode):
    model = build("luna")
    assert [fault for dtype in (torch.float32, *HALVES) for fault in run_apollo(model, dtype, **APOLLO[mode])] == []


def test_waits_and_copies_are_counted_by_place():
    with FakeTensorMode(), Watch(padded=True, shortest=3) as watch:
        words = torch.empty(2, 7, dtype=torch.int64, device="cuda")
        assert words.eq(1).any()
        assert words.sum().item() == 3
        words.cpu()
    assert watch.waits == {"elsewhere": 2}
    assert watch.copies == {"to the host at elsewhere": 1}
    assert watch.faults == []


def test_operands_on_two_devices_are_a_fault():
    with Watch(padded=True, shortest=3) as watch:
        torch.ones(2, 2, device="meta") + torch.ones(())
        torch.ones(2, 2, device="meta") @ torch.ones(2, 2)
    assert watch.faults == ["aten.mm.default of cpu and meta at elsewhere"]


def test_faults_of_results():
    with FakeTensorMode():
        results = {"logits": torch.empty(2, device="cuda"), "loss": torch.empty(1), "gradients": {"w": None}}
    seen = faults(results, Watch(padded=True, shortest=3), torch.float16)
    assert seen == ["loss on the CPU", "no gradient for w", "logits in torch.float32"]


def test_the_classifier_is_built_with_a_head():
    assert build(**MODELS["classifier"]).classification_heads

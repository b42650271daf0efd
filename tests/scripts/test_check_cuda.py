"""What check_cuda.py sees. Models themselves run on fake CUDA tensors only with torch's CUDA build: make check-cuda."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import check_cuda
from cuda_checks.runs import build
from cuda_checks.watch import Seen, Watch


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
        logits = torch.empty(2, device="cuda")
        seen = Seen(
            "train",
            {"logits": logits, "loss": torch.empty(1), "gradients": {"w": None}},
            Watch(padded=True, shortest=3),
        )
    assert seen.faults(torch.float16) == [
        "train: loss on the CPU",
        "train: no gradient for w",
        "train: logits in torch.float32",
    ]


def test_the_classifier_is_built_with_a_head():
    assert build(**check_cuda.MODELS["classifier"]).classification_heads


def test_wrong_names_and_a_missing_device_are_refused_in_one_line(capsys):
    assert check_cuda.main(["luna-tied", "lstm"]) == 2
    assert capsys.readouterr().err.startswith("check_cuda.py: unknown: lstm; known: luna-tied, ")
    if not torch.cuda.is_available():
        assert check_cuda.main([]) == 2
        assert "make check-cuda" in capsys.readouterr().err

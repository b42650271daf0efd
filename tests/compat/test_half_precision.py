"""``--fp16`` where it cannot be is refused in one line; what works on a CPU still does."""

import pytest
import torch

from commands import APOLLO, FAMILIES, SIZES, TRANSFORMER, train
from fairseq_luna.usage_error import UsageError

ADAM = ("--optimizer=adam", "--lr=0.01")
OPTIMIZERS = {"adam": ADAM, "apollo": APOLLO}
MODELS = {
    "luna": FAMILIES["luna"],
    "mixed": FAMILIES["mixed"],
    "linear": ("--arch=mixed_tiny", "--decoder-self-attention=linear", *SIZES),
    "transformer": TRANSFORMER[:1] + SIZES,
}


def trained(data, folder, *flags):
    return train(data, folder, *flags, "--max-update=1", "--disable-validation")


def refusal(data, folder, *flags):
    with pytest.raises(UsageError) as refused:
        trained(data, folder, *flags)
    return str(refused.value)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("optimizer", "others"), {"adam": "--bf16 or --amp", "apollo": "--bf16"}.items())
def test_without_cuda_it_is_refused(model, optimizer, others, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = refusal(tiny_data, tmp_path, *MODELS[model], *OPTIMIZERS[optimizer], "--fp16")
    assert line == f"--fp16: it needs a CUDA device, and there is none: use {others}"
    for other in others.split(" or "):
        assert trained(tiny_data, tmp_path / other, *MODELS[model], *OPTIMIZERS[optimizer], other).exists()


@pytest.mark.parametrize("first", ["--fp16", "--memory-efficient-fp16"])
@pytest.mark.parametrize("second", ["--bf16", "--memory-efficient-bf16", "--amp"])
def test_two_kinds_are_refused(first, second, tiny_data, tmp_path):
    line = refusal(tiny_data, tmp_path, *FAMILIES["luna"], *ADAM, first, second)
    assert (
        line
        == f"--fp16 and {'--amp' if second == '--amp' else '--bf16'}: these are two kinds of half precision; "
        + ("give one of them")
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("flags", [("--fp16", "--fp16-no-flatten-grads"), ("--memory-efficient-fp16",)], ids=len)
def test_what_needs_no_cuda_is_trained(optimizer, flags, tiny_data, tmp_path):
    saved = trained(tiny_data, tmp_path, *FAMILIES["luna"], *OPTIMIZERS[optimizer], *flags)
    weight = torch.load(saved, weights_only=True)["model"]["encoder.embed_tokens.weight"]
    assert weight.half().to(weight.dtype).equal(weight)

"""``--amp --cpu``: the forward pass of a training in bf16, and all that is kept in fp32."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

from commands import FAMILIES, TRANSFORMER, train
from fairseq_luna.criterions import NAME
from tiny_training import trained_weights

SMOOTHED = "--criterion=label_smoothed_cross_entropy"
MODELS = {
    "transformer": TRANSFORMER,
    "luna": (*FAMILIES["luna"], f"--criterion={NAME}"),
    "fastformer": (*FAMILIES["fastformer"], SMOOTHED),
}


@pytest.mark.parametrize("flags", MODELS.values(), ids=MODELS)
def test_trains_near_fp32(flags, tiny_data, tmp_path, monkeypatch):
    seen = []
    original = LabelSmoothedCrossEntropyCriterion.forward

    def forward(self, model, sample, reduce=True):
        logits = model(**sample["net_input"])[0]
        seen.append((model.training, logits.dtype))
        return original(self, model, sample, reduce)

    monkeypatch.setattr(LabelSmoothedCrossEntropyCriterion, "forward", forward)
    flags = (*flags, "--max-update=6", "--dropout=0", "--optimizer=sgd", "--lr=0.1", "--clip-norm=1")
    exact = trained_weights(train(tiny_data, tmp_path / "fp32", *flags))
    assert {dtype for _, dtype in seen} == {torch.float32}
    seen.clear()
    found = trained_weights(train(tiny_data, tmp_path / "amp", *flags, "--amp"))
    assert set(seen) == {(True, torch.bfloat16), (False, torch.float32)}
    assert {weight.dtype for weight in found.values()} == {torch.float32}
    largest = max((found[name] - exact[name]).abs().max() for name in exact)
    assert 0 < largest < 0.02

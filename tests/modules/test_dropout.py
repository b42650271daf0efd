"""Dropout behaves as fairseq's does, which its models and flags rely on."""

import pytest
import torch
from fairseq.modules import FairseqDropout

from fairseq_luna.modules.dropout import Dropout, WordDropout, dropout_probability


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"retain_dropout": True},
        {"retain_dropout": True, "retain_dropout_modules": ["Own"]},
        {"retain_dropout": True, "retain_dropout_modules": ["Other"]},
        {"retain_dropout": False, "retain_dropout_modules": ["Own"]},
    ],
    ids=["default", "all", "own", "others", "off"],
)
def test_equals_fairseqs(p, training, flags):
    results = []
    for kind in (FairseqDropout, Dropout):
        module = kind(p, module_name="Own").train(training)
        module.make_generation_fast_(name="here", need_attn=False, **flags)
        torch.manual_seed(0)
        results.append((module(torch.ones(5, 7)).tolist(), dropout_probability(module)))
    assert results[0] == results[1]


def test_whole_words_are_dropped():
    torch.manual_seed(0)
    dropped = WordDropout(0.25)(torch.ones(50, 40, 6))
    kept = dropped[..., 0] > 0
    assert dropped.eq(torch.where(kept, 1 / 0.75, 0.0)[..., None]).all()
    assert 0.7 < kept.float().mean() < 0.8

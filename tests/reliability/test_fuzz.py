"""Configurations drawn at random: each trains, is loaded again and translates, or is refused in a line.

Other ones, and how many trained: python -m pytest tests/reliability/test_fuzz.py -k drawn --hypothesis-profile=fuzz
--hypothesis-seed=1 --hypothesis-show-statistics
"""

import re
import tempfile
from pathlib import Path

import pytest
from fairseq.models.transformer import TransformerConfig
from hypothesis import event, given
from omegaconf import OmegaConf

from harness.configurations import Configuration, Flag, configurations
from harness.flags import CLASSIFIERS
from harness.life import Broken
from harness.outcomes import outcome
from harness.parsing import parse

PYRAMID = "block_pyramid_classifier"
MERGES = hasattr(TransformerConfig, "merge_src_tgt_embed")  # not in fairseq 0.12.2


def configuration(typed):
    """Of a model's name and flags, and the criterion that fits them."""
    arch, *flags = re.split(" (?=--)", typed)
    adaptive = "adaptive_loss" if "--adaptive-softmax-cutoff" in typed else "cross_entropy"
    criterion = "sentence_prediction" if arch in CLASSIFIERS else adaptive
    return Configuration(arch, "apollo", "milestone", criterion, True, tuple(map(Flag, flags)))


@given(configurations())
def test_what_is_drawn_trains_and_is_used_or_is_refused_in_a_line(drawn):
    with tempfile.TemporaryDirectory() as folder:
        event("refused" if outcome(drawn, Path(folder)) else "trained")


# Configurations that once failed, and the refusal now; empty if they train.
FOUND = {
    "luna --encoder-layers-to-keep=1": "",
    "block --decoder-layers-to-keep=0, 2": "",
    "luna --merge-src-tgt-embed --decoder-output-dim=4": (
        "--decoder-output-dim 4: must equal" if MERGES else "--merge-src-tgt-embed"
    ),
    "luna --adaptive-softmax-cutoff=8,4": "cutoff [8, 4]: must be above 0 and ascending",
    "luna --adaptive-softmax-cutoff=0": "--adaptive-softmax-cutoff [0]: must be above 0",
    "luna --adaptive-softmax-cutoff=8 --adaptive-softmax-dropout=2": "dropout 2.0: must be at least 0 and less",
    "luna --adaptive-softmax-cutoff=8 --adaptive-softmax-factor=inf": "factor inf: must be above 0 and finite",
    "luna --tie-adaptive-weights": "--tie-adaptive-weights: it needs adaptive input",
    "luna --adaptive-softmax-cutoff=8 --share-all-embeddings": "",
    # 0.12.2 does not have that flag.
    "block --merge-src-tgt-embed --decoder-embed-dim=4": "--merge-src-tgt-embed",
    "fastformer --encoder-embed-dim=2": "--encoder-embed-dim 2: sinusoidal positions need 4",
    "luna --encoder-embed-dim=2 --encoder-learned-pos": "--decoder-embed-dim 2 (--encoder-embed-dim unless",
    f"{PYRAMID} --encoder-embed-dim=2": "--encoder-embed-dim 2: sinusoidal positions need 4 or more",
    "luna --encoder-embed-dim=2 --encoder-learned-pos --decoder-learned-pos": "",
}


@pytest.mark.parametrize(("typed", "said"), FOUND.items(), ids=FOUND)
def test_faults_found_by_fuzzing_stay_fixed(typed, said, tmp_path):
    line = outcome(configuration(typed), tmp_path)
    assert said in line and bool(said) == bool(line)


QUICKLY = {
    "defaults": "luna",
    "lists": "luna --word-dropout=0.1 --milestones=1,5 --lr=0.1,0.2 --weight-decay-type=stable --bf16",
    "kept-layers": "luna --encoder-layers-to-keep=0,1 --decoder-embed-dim=4 --adaptive-softmax-cutoff=4,8",
    "strings": "luna --encoder-embed-path=/a b --share-all-embeddings --max-target-positions=5",
    "pyramid": f"{PYRAMID} --pyramid-block-sizes=2, 4",
}


@pytest.mark.parametrize("typed", QUICKLY.values(), ids=QUICKLY)
def test_the_quick_config_is_fairseqs(typed):
    drawn = configuration(typed)
    for others in (drawn._replace(flags=()), drawn):
        parse(others.arguments())
    quick, slow = (OmegaConf.to_container(parse(drawn.arguments(), quickly=quickly)) for quickly in (True, False))
    assert quick == slow


def test_failures_are_seen(tmp_path, monkeypatch):
    with pytest.raises(Broken, match=r"was not refused: \['--dropout=0.1'\]"):
        outcome(configuration("luna")._replace(flags=(Flag("--dropout=0.1", is_bad=True),)), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("harness.outcomes.UsageError.__str__", lambda error: "--attention-dropout 2: too large")
        with pytest.raises(Broken, match="names none of the flags given"):
            outcome(configuration("luna --dropout=2"), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("harness.life.outputs", lambda model, batch: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            outcome(configuration("luna"), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("harness.life.saved_and_loaded", lambda trainer, path, task: task.build_model(trainer.cfg.model))
        with pytest.raises(Broken, match="the loaded model gives other outputs"):
            outcome(configuration("luna"), tmp_path)
    monkeypatch.setattr("fairseq_luna.models.roberta.model.CLASSIFYING", ())
    with pytest.raises(Broken, match=r"no gradient: \['encoder.lm_head"):
        outcome(configuration("luna_roberta"), tmp_path)

"""Trainings of two updates that must work: precisions, what is close to bad input, and models that are not ours."""

import pytest
import torch

from commands import APOLLO, FAMILIES, SIZES, TRANSFORMER, generate, train
from tiny_training import trained_weights

ADAM = ("--criterion=label_smoothed_cross_entropy", "--optimizer=adam", "--lr=0.001", "--clip-norm=1")
PRECISIONS = {
    **{flag.strip("-"): (flag,) for flag in ("--bf16", "--memory-efficient-bf16", "--memory-efficient-fp16")},
    "fp16": ("--fp16", "--fp16-no-flatten-grads"),
}
ADAPTIVE = ("--adaptive-softmax-cutoff=4,8", "--decoder-output-dim=8", "--ddp-backend=legacy_ddp")
TRAINED = {
    # Precision matters in a family's attention and in an optimizer's steps; for Adam's steps one family is enough.
    **{
        f"{family}-{precision}": (*FAMILIES[family], *APOLLO, *flags)
        for family in ("luna", "fastformer", "block")
        for precision, flags in PRECISIONS.items()
    },
    **{f"adam-{precision}": (*FAMILIES["luna"], *ADAM, *flags) for precision, flags in PRECISIONS.items()},
    "adam-amp": (*FAMILIES["luna"], *ADAM, "--amp"),
    "edges-of-ranges": (
        *(*FAMILIES["luna"], *ADAM, "--lr=0.1,0", "--update-freq=2,1", "--clip-norm=inf", "--label-smoothing=1"),
        *("--max-tokens=100", "--batch-size=-1", "--validate-interval=-1", "--dropout=0", "--encoder-layerdrop=0.99"),
    ),
    "no-clipping": (*FAMILIES["block"], *ADAM, "--clip-norm=0", "--label-smoothing=0", "--quant-noise-pq=0.1"),
    "warm-up-to-the-first-milestone": (*FAMILIES["luna"], *APOLLO, "--warmup-updates=14", "--warmup-init-lr=0"),
    "adaptive-loss": (
        *("--arch=luna_tiny", *SIZES, *ADAPTIVE, "--criterion=adaptive_loss", "--optimizer=apollo", "--lr=0.01"),
    ),
    "resets-without-a-checkpoint": (
        *(*FAMILIES["luna"], *APOLLO, "--reset-optimizer", "--reset-dataloader", "--reset-lr-scheduler"),
        "--reset-meters",
    ),
    # A command that starts a run and resumes it names its own last checkpoint.
    "own-checkpoint-to-come": (*FAMILIES["luna"], *APOLLO, "--restore-file={folder}/run/../run/checkpoint_last.pt"),
    "no-checkpoint-to-restore": (*FAMILIES["luna"], *APOLLO, "--restore-file=no-such.pt"),
    # More than a sentence has, and less than some have, which are left out.
    "more-blocks-than-words": ("--arch=block_tiny", *SIZES, *APOLLO, "--num-blocks=1000", "--decoder-block-size=1000"),
    "more-slots-than-words": ("--arch=luna_tiny", *SIZES, *APOLLO, "--projection-length=1000"),
    "few-positions": (*FAMILIES["luna"], *APOLLO, "--max-source-positions=4", "--max-target-positions=4"),
    # What fairseq accepts for its own model stays accepted.
    "fairseq's-own": (*TRANSFORMER, "--lr=0", "--clip-norm=-1", "--label-smoothing=1.5", "--weight-decay=-1"),
}


@pytest.mark.parametrize("flags", TRAINED.values(), ids=TRAINED)
def test_trains(tiny_data, tmp_path, flags):
    flags = [flag.format(folder=tmp_path) for flag in flags]
    fixed = ("--max-update=2", "--disable-validation", "--fp16-init-scale=4")
    path = train(tiny_data, tmp_path / "run", *flags, *fixed)
    assert torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"] == 2
    assert all(torch.isfinite(tensor).all() for tensor in trained_weights(path).values())


# Each family with what a training can do besides, validation by BLEU too.
BESIDES = (
    *("--checkpoint-activations", "--encoder-layerdrop=0.3", "--decoder-layerdrop=0.3", "--update-freq=2"),
    *("--eval-bleu", "--best-checkpoint-metric=bleu", "--maximize-best-checkpoint-metric"),
)


@pytest.mark.parametrize("family", ["luna", "fastformer", "block"])
def test_trains_with_much_besides(tiny_data, tmp_path, family):
    path = train(tiny_data, tmp_path, *FAMILIES[family], *APOLLO, *BESIDES, "--max-epoch=1")
    assert all(torch.isfinite(tensor).all() for tensor in trained_weights(path).values())


@pytest.mark.parametrize("model", [FAMILIES["luna"], ("--arch=lstm",)], ids=["luna", "fairseq's"])
def test_generates(tiny_data, tmp_path, capsys, model):
    trained = train(tiny_data, tmp_path, *model, *ADAM, "--max-update=1", "--disable-validation")
    edges = ("--unkpen=inf", "--min-len=0", "--beam=2", "--nbest=2", "--lenpen=-1", "--max-len-b=1", "--prefix-size=0")
    own = () if model == FAMILIES["luna"] else ("--lenpen=inf", "--prefix-size=-1")
    generate(tiny_data, str(trained), *edges, *own)
    assert "\nH-0" in capsys.readouterr().out

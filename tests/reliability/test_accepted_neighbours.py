"""Valid input close to what is refused is accepted, and so is everything without a model of this package."""

from pathlib import Path

import pytest

from commands import APOLLO, FAMILIES, SIZES, generate, train

ADAM = ("--criterion=label_smoothed_cross_entropy", "--optimizer=adam", "--lr=0.001", "--clip-norm=1")
ADAPTIVE = ("--adaptive-softmax-cutoff=4,8", "--decoder-output-dim=8", "--ddp-backend=legacy_ddp")

TRAIN = {
    "edges-of-ranges": (
        *(*FAMILIES["luna"], *ADAM, "--lr=0.1,0", "--update-freq=2,1", "--clip-norm=inf", "--label-smoothing=1"),
        *("--max-tokens=100", "--batch-size=-1", "--validate-interval=-1", "--dropout=0", "--encoder-layerdrop=0.99"),
    ),
    "no-clipping": (*FAMILIES["block"], *ADAM, "--clip-norm=0", "--label-smoothing=0", "--quant-noise-pq=0.1"),
    "warm-up-to-the-first-milestone": (*FAMILIES["luna"], *APOLLO, "--warmup-updates=14", "--warmup-init-lr=0"),
    "adaptive-loss": (
        *("--arch=luna_tiny", *SIZES, *ADAPTIVE, "--criterion=adaptive_loss", "--optimizer=adam", "--lr=0.001"),
    ),
    "resets-without-a-checkpoint": (
        *(*FAMILIES["luna"], *APOLLO, "--reset-optimizer", "--reset-dataloader", "--reset-lr-scheduler"),
        "--reset-meters",
    ),
    # A command that starts a run and resumes it names its own last checkpoint.
    "own-checkpoint-to-come": (*FAMILIES["luna"], *APOLLO, "--restore-file={folder}/run/../run/checkpoint_last.pt"),
    # fairseq's own model: what fairseq accepts stays accepted.
    "fairseq's-transformer": (
        *("--arch=transformer_tiny", *ADAM, "--lr=0", "--clip-norm=-1", "--label-smoothing=1.5"),
        *("--restore-file=no-such.pt", "--weight-decay=-1"),
    ),
}


@pytest.mark.parametrize("flags", TRAIN.values(), ids=TRAIN)
def test_trains(tiny_data, tmp_path, flags):
    flags = [flag.format(folder=tmp_path) for flag in flags]
    assert train(tiny_data, tmp_path / "run", *flags, "--max-update=1", "--disable-validation").exists()


@pytest.mark.parametrize("model", [FAMILIES["luna"], ("--arch=lstm",)], ids=["luna", "fairseq's"])
def test_generates(tiny_data, tmp_path, capsys, model):
    trained = train(tiny_data, tmp_path, *model, *ADAM, "--max-update=1", "--disable-validation")
    edges = ("--unkpen=inf", "--min-len=0", "--beam=2", "--nbest=2", "--lenpen=-1", "--max-len-b=1", "--prefix-size=0")
    own = () if model == FAMILIES["luna"] else ("--lenpen=inf", "--prefix-size=-1")
    generate(tiny_data, str(trained), *edges, *own)
    assert "\nH-0" in capsys.readouterr().out


def test_training_continues_from_the_last_and_from_a_named_checkpoint(tiny_data, tmp_path):
    flags = (*FAMILIES["luna"], *APOLLO, "--disable-validation")
    first = train(tiny_data, tmp_path / "first", *flags, "--max-update=1")
    train(tiny_data, tmp_path / "first", *flags, "--max-update=2", f"--restore-file={first}")
    second = train(tiny_data, tmp_path / "second", *flags, "--max-update=3", f"--restore-file={first}")
    tuned = train(tiny_data, tmp_path / "tuned", *flags, "--max-update=1", f"--finetune-from-model={second}")
    assert Path(tuned).exists()

"""A checkpoint written with one Python, fairseq and torch is used with another."""

import shutil
from pathlib import Path

import small_training
from fairseq_luna.commands.steps import USER_DIR, run_fairseq

UPDATES, LATER = 12, 15
CLOSE = 2e-3  # fairseq-generate prints scores with four decimals


def write(folder: Path, arch: str) -> None:
    """Train a small model with Apollo and translate with it."""
    data = small_training.make_data(folder)
    train(data, folder / arch, arch, UPDATES)
    translate(data, folder / arch, folder / f"{arch}.generated")


def read(folder: Path, arch: str, here: Path) -> None:
    """Translate with the checkpoint in ``folder``, compare words and scores, and resume the training."""
    translate(folder / "data-bin", folder / arch, here / f"{arch}.read")
    compare(hypotheses(folder / f"{arch}.generated"), hypotheses(here / f"{arch}.read"))
    resumed = here / "resumed" / arch
    resumed.mkdir(parents=True)
    shutil.copy(folder / arch / "checkpoint_last.pt", resumed)
    train(folder / "data-bin", resumed, arch, LATER)
    assert f'"num_updates": "{UPDATES}"' not in resumed.with_suffix(".log").read_text(encoding="utf-8")
    assert small_training.updates_in(resumed / "checkpoint_last.pt") == LATER


def train(data: Path, save_dir: Path, arch: str, updates: int) -> None:
    more = [f"--max-update={updates}"]
    run_fairseq("train", small_training.arguments(data, save_dir, arch, more), save_dir.with_suffix(".log"))


def translate(data: Path, save_dir: Path, generated: Path) -> None:
    checkpoint = save_dir / "checkpoint_last.pt"
    flags = [str(data), f"--user-dir={USER_DIR}", f"--path={checkpoint}", "--gen-subset=valid", "--beam=2"]
    generated.unlink(missing_ok=True)
    run_fairseq("generate", [*flags, "--max-len-b=12", "--cpu", "--num-workers=0"], generated)


def hypotheses(generated: Path) -> dict[str, tuple[float, str]]:
    """Score and words of each sentence."""
    lines = generated.read_text(encoding="utf-8").splitlines()
    found = (line.split("\t") for line in lines if line.startswith("H-"))
    return {number: (float(score), words) for number, score, words in found}


def compare(there: dict[str, tuple[float, str]], here: dict[str, tuple[float, str]]) -> None:
    """Words and scores must agree."""
    assert there and there.keys() == here.keys()
    assert {number: words for number, (_, words) in there.items()} == {n: words for n, (_, words) in here.items()}
    assert {number for number, (score, _) in there.items() if abs(here[number][0] - score) > CLOSE} == set()

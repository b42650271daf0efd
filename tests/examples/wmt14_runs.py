"""Shared by the tests of the examples: paths, a data-bin, small sizes, a shell."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ROWS = REPOSITORY / "examples" / "wmt14_en_de"
TRAIN = ROWS / "train.sh"
LAUNCH = REPOSITORY / "scripts" / "launch"

SIZES = ("encoder-layers=1", "decoder-layers=1", "encoder-embed-dim=16", "encoder-ffn-embed-dim=16")
SIZES += ("encoder-attention-heads=2", "decoder-attention-heads=2")
# Two updates of 8 sentences.
SMALL = (*(f"--{size}" for size in SIZES), "--decoder-embed-dim=16", "--decoder-ffn-embed-dim=16")
SHORT = ("--max-update=2", "--batch-size=8", "--num-workers=0", "--data-buffer-size=0", "--disable-validation", "--cpu")


def english_german(tiny_data: str, folder: Path) -> Path:
    """A copy of the tests' data-bin with the languages en and de."""
    return renamed(tiny_data, folder, "en", "de")


def renamed(tiny_data: str, folder: Path, source: str, target: str) -> Path:
    """A copy of the tests' data-bin with other languages."""
    names = {"a": source, "b": target, "a-b": f"{source}-{target}"}
    for file in Path(tiny_data).iterdir():
        name = ".".join(names.get(part, part) for part in file.name.split("."))
        shutil.copyfile(file, folder / name)
    return folder


def shell(
    script: Path, *flags: str, folder: Path = REPOSITORY, path: Sequence[Path] = (), **environment: object
) -> subprocess.CompletedProcess[str]:
    """Run ``script`` in bash with no other variables of the scripts than ``environment``, and ``path`` before PATH."""
    ours = (
        "DATA",
        "SAVE_DIR",
        "GPUS",
        "MAX_TOKENS",
        "UPDATE_FREQ",
        "UPDATES",
        "POSITIONS",
        "NODES",
        "NODE_RANK",
        "RANK",
        "WORLD_SIZE",
        "DRY_RUN",
    )
    inherited = {key: value for key, value in os.environ.items() if key not in ours and not key.startswith("SLURM_")}
    inherited["PATH"] = ":".join([*map(str, path), inherited["PATH"]])
    given = {key: str(value) for key, value in environment.items()}
    return subprocess.run(
        ["bash", str(script), *flags],
        cwd=folder,
        env={**inherited, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", **given},
        capture_output=True,
        text=True,
        timeout=300,
    )


def refusal(result: subprocess.CompletedProcess[str]) -> str:
    """The one line with which a script refuses, its only output."""
    assert (result.returncode, result.stdout) == (2, ""), result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    return line

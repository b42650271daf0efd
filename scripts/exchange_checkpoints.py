"""Check that a checkpoint written with one Python, fairseq and torch can be used with another.

    python scripts/exchange_checkpoints.py write HERE         in one environment
    python scripts/exchange_checkpoints.py read THERE ...     in another

write trains a small model of each family with Apollo and translates with it. read translates with the checkpoints in
each folder, compares words and scores, and resumes each training.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fairseq_luna.commands.command_line import CommandError, Parser, command
from fairseq_luna.commands.steps import USER_DIR, run_fairseq
from shared import small_training

ARCHITECTURES = ("luna_tiny", "fastformer_tiny", "block_tiny")
_UPDATES, _LATER = 12, 15
# fairseq-generate prints scores with four decimals.
_CLOSE = 2e-3


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("what", choices=("write", "read"))
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    args = parser.parse_args(arguments)
    for folder in args.folders:
        write(folder) if args.what == "write" else read(folder)


def write(folder: Path) -> None:
    data = small_training.make_data(folder)
    for arch in ARCHITECTURES:
        train(data, folder / arch, arch, _UPDATES)
        translate(data, last(folder / arch), folder / f"{arch}.generated")
        print(f"{folder}: {arch} written", flush=True)


def read(folder: Path) -> None:
    """Raises CommandError if a translation differs or a training does not resume."""
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        for arch in ARCHITECTURES:
            translate(folder / "data-bin", last(folder / arch), here / "generated")
            compare(hypotheses(folder / f"{arch}.generated"), hypotheses(here / "generated"), f"{folder}: {arch}")
            (here / arch).mkdir()
            shutil.copy(last(folder / arch), here / arch)
            train(folder / "data-bin", here / arch, arch, _LATER)
            if small_training.updates_in(last(here / arch)) != _LATER:
                raise CommandError(f"{folder}: {arch}: training started again instead of resuming", status=1)
            print(f"{folder}: {arch} read, the same translations, training resumed", flush=True)


def last(folder: Path) -> Path:
    return folder / "checkpoint_last.pt"


def train(data: Path, save_dir: Path, arch: str, updates: int) -> None:
    more = [f"--max-update={updates}"]
    run_fairseq("train", small_training.arguments(data, save_dir, arch, more), save_dir.with_suffix(".log"))


def translate(data: Path, checkpoint: Path, generated: Path) -> None:
    flags = [str(data), f"--user-dir={USER_DIR}", f"--path={checkpoint}", "--gen-subset=valid", "--beam=2"]
    generated.unlink(missing_ok=True)
    run_fairseq("generate", [*flags, "--max-len-b=12", "--cpu", "--num-workers=0"], generated)


def hypotheses(generated: Path) -> dict[str, tuple[float, str]]:
    """Score and words of each sentence."""
    lines = generated.read_text(encoding="utf-8").splitlines()
    found = (line.split("\t") for line in lines if line.startswith("H-"))
    return {number: (float(score), words) for number, score, words in found}


def compare(there: dict[str, tuple[float, str]], here: dict[str, tuple[float, str]], what: str) -> None:
    """Raises CommandError unless words and scores agree; ``what`` begins its message."""
    if not there or there.keys() != here.keys():
        raise CommandError(f"{what}: {len(there)} sentences were translated there, {len(here)} here", status=1)
    for number, (score, words) in there.items():
        if here[number][1] != words or abs(here[number][0] - score) > _CLOSE:
            raise CommandError(f"{what}: {number} was {score} {words!r}, and is {here[number]}", status=1)


if __name__ == "__main__":
    sys.exit(main())

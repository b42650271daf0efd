"""Kill a training again and again, resume it each time, and compare it with an uninterrupted one, bit for bit.

    python scripts/kill_rounds.py --rounds 50 --seed 1 --arch luna_tiny [flags of fairseq-train]

A third of the kills follow a random update after a random delay; a third are aimed at the writing of a checkpoint, a
third at its copying to checkpoint_last.pt. What a kill leaves behind shows where it really happened.
"""

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_luna.commands.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.steps import remove
from kills.moments import Start, draw_moment, start_and_kill, start_training, wait_for_update
from shared import small_training
from shared.small_training import MAX_UPDATE, differing, logged, outcome, updates_in


class Reference(NamedTuple):
    """The uninterrupted training; ``seconds`` is the mean time from one update to the next, saves included."""

    outcome: dict[str, Any]
    logged: dict[tuple[str, str], dict[str, str]]
    seconds: float


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=positive, default=10, help="number of kills (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument("--arch", default="luna_tiny")
    parser.add_argument("--folder", type=Path, help="where everything is kept (default: a temporary folder)")
    args, flags = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        kill_rounds(args.folder or Path(temporary), args.arch, args.rounds, args.seed, flags)


def kill_rounds(folder: Path, arch: str, rounds: int, seed: int, flags: list[str] | None = None) -> Counter[str]:
    """Kill ``rounds`` times and compare every start and every end; returns the number of kills by place.

    Raises:
        CommandError: a start did not resume from the last checkpoint, or anything logged or saved differs.
    """
    draw, where, ends = random.Random(seed), Counter[str](), 0
    data = small_training.make_data(folder)
    reference = uninterrupted(small_training.arguments(data, folder / "whole", arch, flags or []), folder / "whole")
    save_dir = folder / "killed"
    arguments, last = small_training.arguments(data, save_dir, arch, flags or []), save_dir / "checkpoint_last.pt"
    remove(save_dir)
    while where.total() < rounds or ends == 0 or save_dir.exists():
        before = updates_kept(last)
        moment = draw_moment(draw, before, reference.seconds) if where.total() < rounds else None
        start = start_and_kill(arguments, save_dir, moment, draw)
        check_start(start, before, reference)
        if start.finished:
            check_end(last, reference)
            remove(save_dir)
            ends += 1
            print(f"a training ended like the uninterrupted one, after {where.total()} kills", flush=True)
            continue
        where[start.where] += 1
        after = updates_kept(last)
        print(f"kill {where.total():3}: {start.where}; {after} updates are kept, {before} before", flush=True)
        if after < before:
            raise CommandError(f"{last} had {before} updates before the kill, and has {after}", status=1)
    counts = ", ".join(f"{count} {place}" for place, count in sorted(where.items()))
    print(f"{arch}: {where.total()} kills survived ({counts}); {ends} trainings ended like the uninterrupted one")
    return where


def updates_kept(last: Path) -> int:
    """The number of updates in the last checkpoint; 0 if there is none.

    Raises:
        CommandError: it cannot be read.
    """
    try:
        return updates_in(last)
    except Exception as error:  # torch raises many types for a damaged file
        raise CommandError(f"{last} cannot be read any more: {error}", status=1) from error


def uninterrupted(arguments: list[str], save_dir: Path) -> Reference:
    remove(save_dir)
    log = save_dir.with_suffix(".log")
    with log.open("w", encoding="utf-8") as file, start_training(arguments, file) as training:
        wait_for_update(training, log, 1)
        begin = time.monotonic()
        wait_for_update(training, log, MAX_UPDATE)
        seconds = (time.monotonic() - begin) / (MAX_UPDATE - 1)
    last = save_dir / "checkpoint_last.pt"
    if updates_in(last) != MAX_UPDATE:
        raise CommandError(f"the uninterrupted training did not end; its output is in {log}", status=1)
    return Reference(outcome(last), logged(log.read_text(encoding="utf-8")), seconds)


def check_start(start: Start, before: int, reference: Reference) -> None:
    """Raises CommandError unless the log continues at the checkpoint's update and equals the uninterrupted log."""
    found = logged(start.log)
    updates = [int(update) for kind, update in found if kind == "train_inner"]
    if updates and updates[0] != before + 1:
        raise CommandError(f"a start resumed with update {updates[0]}, and the checkpoint had {before}", status=1)
    for key, record in found.items():
        if record != reference.logged.get(key):
            expected = reference.logged.get(key)
            raise CommandError(f"{key[0]} {key[1]}: {record}, but {expected} in the uninterrupted training", status=1)


def check_end(last: Path, reference: Reference) -> None:
    names = differing(outcome(last), reference.outcome)
    if names:
        count = f"{len(names)} of {len(reference.outcome)}"
        raise CommandError(f"{count} values differ from the uninterrupted training: {names[:5]}", status=1)


if __name__ == "__main__":
    sys.exit(main())

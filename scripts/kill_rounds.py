"""Kill a training again and again, resume it each time, and compare it with one that was left alone, bit for bit.

    python scripts/kill_rounds.py --rounds 50 --seed 1 --arch luna_tiny [flags of fairseq-train]

A third of the kills follow an update, any of those to come, and any moment after it; a third are aimed at the writing
of a checkpoint, a third at its copying to checkpoint_last.pt. Where each has really fallen is read from what it left.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from shared import small_training
from kills.moments import Start, draw_moment, start_and_kill, start_training, wait_for_update
from shared.small_training import MAX_UPDATE, differing, logged, outcome, updates_in
from shared.steps import CommandError, remove


class CommandError(Exception):
    """A training that was killed and resumed is not the one that was left alone; the message says where."""


class Reference(NamedTuple):
    """The training that was left alone; ``seconds`` are from one update to the next, saves included, on average."""

    outcome: dict[str, Any]
    logged: dict[tuple[str, str], dict[str, str]]
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="how many kills")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument("--arch", default="luna_tiny")
    parser.add_argument("--folder", type=Path, help="where everything is kept; default: one that is removed")
    args, flags = parser.parse_known_args()
    if args.rounds < 1:
        print(f"kill_rounds.py: --rounds {args.rounds}: must be 1 or more", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        try:
            kill_rounds(args.folder or Path(temporary), args.arch, args.rounds, args.seed, flags)
        except (CommandError, CommandError) as failure:
            print(failure, file=sys.stderr)
            return 1
    return 0


def kill_rounds(folder: Path, arch: str, rounds: int, seed: int, flags: list[str] | None = None) -> Counter[str]:
    """Kill ``rounds`` times and compare every start and every end; returns how many kills fell where.

    Raises:
        CommandError: if a start did not go on from the last checkpoint, or anything logged or saved is not as it was.
    """
    draw, where, ends = random.Random(seed), Counter[str](), 0
    data = small_training.make_data(folder)
    reference = left_alone(small_training.arguments(data, folder / "whole", arch, flags or []), folder / "whole")
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
            print(f"an end, which is that of the training left alone, after {where.total()} kills", flush=True)
            continue
        where[start.where] += 1
        after = updates_kept(last)
        print(f"kill {where.total():3}: {start.where}; {after} updates are kept, {before} before", flush=True)
        if after < before:
            raise CommandError(f"{last} had {before} updates before the kill, and has {after}")
    counts = ", ".join(f"{count} {place}" for place, count in sorted(where.items()))
    print(f"{arch}: {where.total()} kills survived ({counts}); {ends} trainings ended as the one left alone")
    return where


def updates_kept(last: Path) -> int:
    """How many updates the last checkpoint holds; 0 before there is one.

    Raises:
        CommandError: if it cannot be read.
    """
    try:
        return updates_in(last)
    except Exception as error:  # whatever torch says of a damaged file
        raise CommandError(f"{last} cannot be read any more: {error}") from error


def left_alone(arguments: list[str], save_dir: Path) -> Reference:
    remove(save_dir)
    log = save_dir.with_suffix(".log")
    with log.open("w", encoding="utf-8") as file, start_training(arguments, file) as training:
        wait_for_update(training, log, 1)
        begin = time.monotonic()
        wait_for_update(training, log, MAX_UPDATE)
        seconds = (time.monotonic() - begin) / (MAX_UPDATE - 1)
    last = save_dir / "checkpoint_last.pt"
    if updates_in(last) != MAX_UPDATE:
        raise CommandError(f"the training that was left alone did not end; its output is in {log}")
    return Reference(outcome(last), logged(log.read_text(encoding="utf-8")), seconds)


def check_start(start: Start, before: int, reference: Reference) -> None:
    """All that was logged is what the training left alone has logged, from the first update after the checkpoint's."""
    found = logged(start.log)
    updates = [int(update) for kind, update in found if kind == "train_inner"]
    if updates and updates[0] != before + 1:
        raise CommandError(f"a start went on with update {updates[0]}, and the checkpoint had {before}")
    for key, record in found.items():
        if record != reference.logged.get(key):
            raise CommandError(f"{key[0]} {key[1]}: {record} was {reference.logged.get(key)} in the training left alone")


def check_end(last: Path, reference: Reference) -> None:
    names = differing(outcome(last), reference.outcome)
    if names:
        raise CommandError(f"{len(names)} of {len(reference.outcome)} values differ from the training left alone: {names[:5]}")


if __name__ == "__main__":
    sys.exit(main())

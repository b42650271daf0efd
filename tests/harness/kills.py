"""Kill a training again and again, resume it each time, and compare it with an uninterrupted one, bit for bit.

A third of the kills follow a random update after a random delay; a third are aimed at the writing of a checkpoint, a
third at its copying to checkpoint_last.pt. The update is drawn and not the time: most of a start is imports.
"""

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import small_training
from fairseq_luna.commands.steps import remove
from small_training import MAX_UPDATE, differing, logged, outcome, updates_in

ANYWHERE, WRITING, COPYING = "anywhere", "writing", "copying"
# The name of the file while it is written.
UNFINISHED = {WRITING: "checkpoint_[!l]*.tmp", COPYING: "checkpoint_last.pt.tmp", ANYWHERE: "*.tmp"}
FILE_POLL_S, LOG_POLL_S = 0.0005, 0.02
# How long a file grows before the kill, and how many files at most are skipped.
GROW_S, PASS = 0.03, 3
Process = subprocess.Popen[bytes]


class Reference(NamedTuple):
    """The uninterrupted training; ``seconds`` is the mean time from one update to the next, saves included."""

    outcome: dict[str, Any]
    logged: dict[tuple[str, str], dict[str, str]]
    seconds: float


def kill_rounds(folder: Path, arch: str, rounds: int, seed: int, flags: Sequence[str] = ()) -> Counter[str]:
    """Kill ``rounds`` times; every start and every end must equal the uninterrupted ones. The kills by place."""
    draw, where, ended = random.Random(seed), Counter[str](), False
    data = small_training.make_data(folder)
    reference = uninterrupted(small_training.arguments(data, folder / "whole", arch, flags), folder / "whole")
    save_dir = folder / "killed"
    arguments, last = small_training.arguments(data, save_dir, arch, flags), save_dir / "checkpoint_last.pt"
    while where.total() < rounds or not ended:
        before = updates_in(last)
        place, log = start(arguments, save_dir, reference.seconds, draw if where.total() < rounds else None)
        check_log(log, before, reference)
        if ended := not place:
            assert differing(outcome(last), reference.outcome) == []
            remove(save_dir)
        else:
            where[place] += 1
            assert updates_in(last) >= before
            print(f"kill {where.total():3}: {place}; {updates_in(last)} updates are kept, {before} before", flush=True)
    return where


def uninterrupted(arguments: list[str], save_dir: Path) -> Reference:
    log = save_dir.with_suffix(".log")
    with log.open("w", encoding="utf-8") as file, training(arguments, file) as process:
        wait_for_update(process, log, 1)
        begin = time.monotonic()
        wait_for_update(process, log, MAX_UPDATE)
        seconds = (time.monotonic() - begin) / (MAX_UPDATE - 1)
    text, last = log.read_text(encoding="utf-8"), save_dir / "checkpoint_last.pt"
    assert updates_in(last) == MAX_UPDATE, text[-2000:]
    return Reference(outcome(last), logged(text), seconds)


def training(arguments: list[str], log: Any) -> Process:
    command, environment = small_training.command(*arguments), small_training.environment()
    return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def start(arguments: list[str], save_dir: Path, seconds: float, draw: random.Random | None) -> tuple[str, str]:
    """Start the training and kill it at a random moment. Where it was killed, "" if it ended before, and its log.

    Without ``draw`` it ends. ``seconds`` is the time of an update.
    """
    known, log = unfinished(save_dir), save_dir.with_suffix(".log")
    before = updates_in(save_dir / "checkpoint_last.pt")
    with log.open("w", encoding="utf-8") as file, training(arguments, file) as process:
        if draw is None:
            process.wait()
        elif (aim := draw.choice((ANYWHERE, WRITING, COPYING))) == ANYWHERE:
            wait_for_update(process, log, draw.randint(min(before + 1, MAX_UPDATE), MAX_UPDATE))
            time.sleep(draw.uniform(0, seconds))
        else:
            catch(process, save_dir, aim, draw)
        process.send_signal(signal.SIGKILL)
    text = log.read_text(encoding="utf-8", errors="replace")
    if process.returncode == -signal.SIGKILL:
        return place_of({name for name, _ in unfinished(save_dir) - known}, text), text
    assert process.returncode == 0, text[-2000:]
    return "", text


def unfinished(save_dir: Path, aim: str = ANYWHERE) -> set[tuple[str, int]]:
    """Names and times of the files that are written now, or were when their writer was killed."""
    found = set()
    for path in save_dir.glob(UNFINISHED[aim]):
        try:
            found.add((path.name, path.stat().st_mtime_ns))
        except FileNotFoundError:  # complete by now
            continue
    return found


def wait_for_update(process: Process, log: Path, update: int) -> None:
    """Return when that update is logged or the training has ended."""
    line = f'"num_updates": "{update}"'
    while process.poll() is None and line not in log.read_text(encoding="utf-8", errors="replace"):
        time.sleep(LOG_POLL_S)


def catch(process: Process, save_dir: Path, aim: str, draw: random.Random) -> None:
    """Return with the training stopped while it writes a file, or ended.

    It is stopped before the last check, so that no file is finished between the check and the kill.
    """
    known, to_pass, grow = unfinished(save_dir, aim), draw.randrange(PASS), draw.uniform(0, GROW_S)
    while process.poll() is None:
        if unfinished(save_dir, aim) - known:
            if to_pass:
                to_pass -= 1
                while process.poll() is None and unfinished(save_dir, aim) - known:
                    time.sleep(FILE_POLL_S)
                continue
            time.sleep(grow)
            process.send_signal(signal.SIGSTOP)
            if unfinished(save_dir, aim) - known:
                return
            process.send_signal(signal.SIGCONT)
            grow /= 2
        time.sleep(FILE_POLL_S)


def place_of(left_behind: set[str], log: str) -> str:
    """Where a kill happened, by the unfinished files and the log that it left."""
    if left_behind:
        return "copying a checkpoint" if "checkpoint_last.pt.tmp" in left_behind else "writing a checkpoint"
    return "between saves" if logged(log) else "starting"


def check_log(log: str, before: int, reference: Reference) -> None:
    """The log continues at the checkpoint's update, and equals that of the uninterrupted training."""
    found = logged(log)
    updates = [int(update) for kind, update in found if kind == "train_inner"]
    assert updates[:1] in ([], [before + 1]), f"resumed with update {updates[0]}, the checkpoint had {before}"
    assert found == {key: reference.logged.get(key) for key in found}

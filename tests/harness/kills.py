"""Kill a training again and again, resume it each time, and compare it with an uninterrupted one, bit for bit.

A third of the kills follow a random update after a random delay; a third are aimed at the writing of a checkpoint, a
third at its copying to checkpoint_last.pt. The update is drawn and not the time: most of a short training is its start.
"""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

import commands
import small_training
import tiny_training
from fairseq_luna.files import remove
from forks import Fork
from small_training import MAX_UPDATE, differing, logged, outcome, updates_in

# The name of the file while it is written or copied.
WRITING, COPYING = "checkpoint_[!l]*.tmp", "checkpoint_last.pt.tmp"
FILE_POLL_S, LOG_POLL_S = 0.0005, 0.02
# How long a file grows before the kill, and how many files at most are skipped.
GROW_S, PASS = 0.03, 3
Process = Fork | subprocess.Popen[bytes]


class Reference(NamedTuple):
    """The uninterrupted training; ``seconds`` is the mean time from one update to the next, saves included."""

    outcome: dict[str, Any]
    logged: dict[tuple[str, str], dict[str, str]]
    seconds: float


def kill_rounds(folder: Path, arch: str, rounds: int, seed: int, flags: Sequence[str] = ()) -> None:
    """Kill ``rounds`` times; every start and every end must equal the uninterrupted ones."""
    draw, kills, ended = random.Random(seed), 0, False
    data = tiny_training.make_data(folder / "data-bin")
    reference = uninterrupted(small_training.arguments(data, folder / "whole", arch, flags), folder / "whole")
    save_dir = folder / "killed"
    arguments, last = small_training.arguments(data, save_dir, arch, flags), save_dir / "checkpoint_last.pt"
    while kills < rounds or not ended:
        before = updates_in(last)
        ended, log = start(arguments, save_dir, reference.seconds, draw if kills < rounds else None)
        check_log(log, before, reference)
        if ended:
            assert differing(outcome(last), reference.outcome) == []
            remove(save_dir)
        else:
            kills += 1
            assert updates_in(last) >= before
            print(f"kill {kills:3}: {updates_in(last)} updates are kept, {before} before", flush=True)


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
    if torch.get_default_device().type == "cuda":  # a process that has initialized CUDA cannot be forked
        return subprocess.Popen([sys.executable, "-m", "fairseq_cli.train", *arguments], stdout=log, stderr=log)
    return Fork(partial(commands.run, "train", *arguments), log)


def start(arguments: list[str], save_dir: Path, seconds: float, draw: random.Random | None) -> tuple[bool, str]:
    """Start the training and kill it at a random moment, if it is not over by then. Whether it is over, and its log.

    Without ``draw`` it is not killed. ``seconds`` is the time of an update.
    """
    log = save_dir.with_suffix(".log")
    before = updates_in(save_dir / "checkpoint_last.pt")
    with log.open("w", encoding="utf-8") as file, training(arguments, file) as process:
        if draw is None:
            process.wait()
        elif aim := draw.choice((None, WRITING, COPYING)):
            catch(process, save_dir, aim, draw)
        else:
            wait_for_update(process, log, draw.randint(min(before + 1, MAX_UPDATE), MAX_UPDATE))
            time.sleep(draw.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
    text = log.read_text(encoding="utf-8", errors="replace")
    assert process.returncode in (0, -signal.SIGKILL), text[-2000:]
    return process.returncode == 0, text


def unfinished(save_dir: Path, aim: str) -> set[tuple[str, int]]:
    """Names and times of the files that are written now, or were when their writer was killed."""
    found = set()
    for path in save_dir.glob(aim):
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


def check_log(log: str, before: int, reference: Reference) -> None:
    """The log continues at the checkpoint's update, and equals that of the uninterrupted training."""
    found = logged(log)
    updates = [int(update) for kind, update in found if kind == "train_inner"]
    assert updates[:1] in ([], [before + 1]), f"resumed with update {updates[0]}, the checkpoint had {before}"
    assert found == {key: reference.logged.get(key) for key in found}

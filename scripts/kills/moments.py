"""Start a training and kill it: after an update, while a checkpoint is written, or while one is copied."""

import random
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fairseq_luna.commands.command_line import CommandError
from shared import small_training
from shared.small_training import logged

ANYWHERE, WRITING, COPYING = "anywhere", "writing", "copying"
# The name of the file while it is written.
_UNFINISHED: Mapping[str, str] = MappingProxyType(
    {WRITING: "checkpoint_[!l]*.tmp", COPYING: "checkpoint_last.pt.tmp", ANYWHERE: "*.tmp"}
)
_FILE_POLL_S, _LOG_POLL_S = 0.0005, 0.02
# How long a file grows before the kill, and how many files at most are skipped.
_GROW_S = 0.03
_PASS = 3


class Start(NamedTuple):
    """One start of the training; ``where`` it was killed unless it finished."""

    finished: bool
    where: str
    log: str


class Moment(NamedTuple):
    """The target of a kill; for ANYWHERE, ``after`` seconds after ``update``."""

    aim: str
    update: int
    after: float


def draw_moment(draw: random.Random, before: int, seconds: float) -> Moment:
    """A moment for a training that resumes after ``before`` updates and takes ``seconds`` for each.

    The update is drawn and not the time, because most of a start's time is spent on imports.
    """
    update = draw.randint(min(before + 1, small_training.MAX_UPDATE), small_training.MAX_UPDATE)
    return Moment(draw.choice((ANYWHERE, WRITING, COPYING)), update, draw.uniform(0, seconds))


def start_training(arguments: list[str], log: Any) -> subprocess.Popen:
    environment = small_training.environment()
    return subprocess.Popen(small_training.command(*arguments), env=environment, stdout=log, stderr=subprocess.STDOUT)


def start_and_kill(arguments: list[str], save_dir: Path, moment: Moment | None, draw: random.Random) -> Start:
    """Start the training and kill it at that moment, unless it ends before; None lets it end.

    Raises:
        CommandError: it ends with an error.
    """
    known, log = unfinished(save_dir), save_dir.with_suffix(".log")
    with log.open("w", encoding="utf-8") as file, start_training(arguments, file) as training:
        if moment is None:
            training.wait()
        elif moment.aim == ANYWHERE:
            wait_for_update(training, log, moment.update)
            time.sleep(moment.after)
        else:
            catch(training, save_dir, moment.aim, draw)
        training.send_signal(signal.SIGKILL)
    text = log.read_text(encoding="utf-8", errors="replace")
    if training.returncode == -signal.SIGKILL:
        return Start(False, place(unfinished(save_dir) - known, text), text)
    if training.returncode != 0:
        raise CommandError(f"a start ended with status {training.returncode}:\n{text[-2000:]}", status=1)
    return Start(True, "", text)


def unfinished(save_dir: Path, aim: str = ANYWHERE) -> set[tuple[str, int]]:
    """Names and times of the files that are written now, or were when their writer was killed."""
    found = set()
    for path in save_dir.glob(_UNFINISHED[aim]):
        try:
            found.add((path.name, path.stat().st_mtime_ns))
        except FileNotFoundError:  # complete by now
            continue
    return found


def wait_for_update(training: subprocess.Popen, log: Path, update: int) -> None:
    """Return when that update is logged or the training has ended."""
    line = f'"num_updates": "{update}"'
    while training.poll() is None and line not in log.read_text(encoding="utf-8", errors="replace"):
        time.sleep(_LOG_POLL_S)


def catch(training: subprocess.Popen, save_dir: Path, aim: str, draw: random.Random) -> None:
    """Return with the training stopped while it writes a file, or ended.

    It is stopped before the last check, so that no file is finished between the check and the kill.
    """
    known, to_pass, grow = unfinished(save_dir, aim), draw.randrange(_PASS), draw.uniform(0, _GROW_S)
    while training.poll() is None:
        if unfinished(save_dir, aim) - known:
            if to_pass:
                to_pass -= 1
                while training.poll() is None and unfinished(save_dir, aim) - known:
                    time.sleep(_FILE_POLL_S)
                continue
            time.sleep(grow)
            training.send_signal(signal.SIGSTOP)
            if unfinished(save_dir, aim) - known:
                return
            training.send_signal(signal.SIGCONT)
            grow /= 2
        time.sleep(_FILE_POLL_S)


def place(left_behind: set[tuple[str, int]], log: str) -> str:
    """Where a kill happened, by the unfinished files and the log that it left."""
    if left_behind:
        copying = "checkpoint_last.pt.tmp" in {name for name, _ in left_behind}
        return "copying a checkpoint" if copying else "writing a checkpoint"
    return "between saves" if logged(log) else "starting"

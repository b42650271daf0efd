"""Steps that leave nothing half made behind, and fairseq's own commands with their logs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

USER_DIR = Path(__file__).resolve().parent.parent / "fairseq_luna"
_LOG_TAIL = 15


class StepFailed(Exception):
    """A command that a step ran has failed; the message says which and shows the end of its log."""


def once(what: str, target: Path, make: Callable[[Path], None]) -> None:
    """Make ``target`` unless it is there, under another name first, so that half of it is never reused."""
    if target.exists():
        print(f"{what}: reusing {target}", flush=True)
        return
    print(f"{what}: making {target}", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(target.name + ".unfinished")
    remove(unfinished)
    make(unfinished)
    unfinished.rename(target)


def remove(path: Path) -> None:
    """Delete a file or a folder that may not be there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def run_fairseq(command: str, arguments: list[str], log: Path, watch: Callable[[str], None] | None = None) -> None:
    """Run ``fairseq_cli.<command>``, its whole output in ``log``, each line of it shown to ``watch``."""
    # For matrices this small a second thread gains a third on an idle machine, and on a busy one, where each
    # waits for the other all the time, it makes everything three times slower.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    line_of_command = [sys.executable, "-m", f"fairseq_cli.{command}", *arguments]
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            line_of_command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process,
    ):
        for line in process.stdout or ():
            file.write(line)
            if watch:
                watch(line)
    if process.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-_LOG_TAIL:])
        raise StepFailed(f"{tail}\nfairseq-{command} ended with status {process.returncode}; its output is in {log}")

"""Commands that are printed for a shell, and fairseq's own commands, which are run with their logs."""

import errno
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ..command_line import CommandError

USER_DIR = Path(__file__).parents[1]  # for fairseq to load this package
_LOG_TAIL = 15


def shortest(path: Path) -> str:
    """``path`` relative to the current folder if it is inside it, and never starting with a dash."""
    absolute, current_folder = Path(os.path.abspath(path)), Path.cwd()
    text = str(absolute.relative_to(current_folder) if absolute.is_relative_to(current_folder) else absolute)
    return f"./{text}" if text.startswith("-") else text


def shown_path(path: Path) -> str:
    """:func:`shortest`, quoted for a shell."""
    return shlex.quote(shortest(path))


def program(name: str) -> str:
    """The shell word that runs the program ``name`` of this Python's environment, seen from the current folder."""
    path = Path(sys.executable).with_name(name)
    return shown_path(path) if path.exists() and shutil.which(name) != str(path) else name


def shell(*words: object) -> str:
    """A command to paste in the current folder: a program of this Python's environment, and its arguments."""
    name, *rest = words
    arguments = (shortest(word) if isinstance(word, Path) else str(word) for word in rest)
    return " ".join([program(str(name)), *map(shlex.quote, arguments)])


def show_next(heading: str, *commands: str) -> None:
    """Print the heading ``what`` and commands to copy, one per line."""
    print(f"\n{heading}:")
    for command in commands:
        print(f"    {command}")


def run_fairseq(command: str, arguments: list[str], log: Path, watch: Callable[[str], None] | None = None) -> None:
    """Run ``fairseq_cli.<command>``, append its output to ``log`` and call ``watch`` with each line.

    ``preprocess`` is given this plugin, for its patches of what fairseq writes.

    Raises:
        CommandError: the command failed. The message has the end of its log.
        OSError: the disk is full.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    plugin = [f"--user-dir={USER_DIR}"] if command == "preprocess" else []
    with log.open("a", encoding="utf-8") as file, start_fairseq(command, [*plugin, *arguments]) as process:
        for line in process.stdout or ():
            file.write(line)
            if watch:
                watch(line)
    if process.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-_LOG_TAIL:])
        if os.strerror(errno.ENOSPC) in tail:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise CommandError(
            f"fairseq-{command} ended with status {process.returncode}; its output is in {log}:\n{tail}", status=1
        )


def start_fairseq(command: str, arguments: list[str]) -> subprocess.Popen[str]:
    """Start ``fairseq_cli.<command>`` in a process whose standard output has its errors too."""
    return subprocess.Popen(
        [sys.executable, "-m", f"fairseq_cli.{command}", *arguments],
        # With matrices this small a second thread helps little on an idle machine, and triples the time on a busy one.
        env={"OMP_NUM_THREADS": "1", **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )

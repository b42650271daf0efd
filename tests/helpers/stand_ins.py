"""Programs for what is pasted into a shell: each call runs in a fork of this process, which has imported everything.

A shell finds them on its path. A program writes its process number, folder and words into a pipe and waits for its exit
status; this process forks, takes over the program's standard streams, and calls the function that stands for it.
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from forks import Fork

_PROGRAM = """#!/usr/bin/env bash
mkfifo "$ANSWERS.$$"  # each call has its own: the pipe of the last one may still be open
(printf '%s\\037' $$ "$PWD" {name} "$@" > "$REQUESTS")  # in a subshell: this one's output stays what it is
read -r status < "$ANSWERS.$$"
exit "$status"
"""


def run_in_shell(text: str, folder: Path, programs: Mapping[str, Callable[[Sequence[str]], object]]) -> str:
    """Paste ``text`` into a shell in ``folder`` that stops at the first failure; returns its standard output.

    ``programs`` has a function of the words after the name for each program. A function fails by raising, or by
    returning a number other than 0.
    """
    tools = folder / ".stand-ins"
    shutil.rmtree(tools, ignore_errors=True)  # of what was pasted before
    tools.mkdir()
    requests, answers, errors = tools / "requests", tools / "answers", tools / "errors"
    os.mkfifo(requests)
    for name in programs:
        (tools / name).write_text(_PROGRAM.format(name=name))
        (tools / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "REQUESTS": str(requests), "ANSWERS": str(answers)}
    # Opened for both directions, so that neither side sees an end of file between two calls.
    with open(os.open(requests, os.O_RDWR), "rb", buffering=0) as calls, errors.open("w") as said:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            **{"cwd": folder, "env": env, "stdout": subprocess.PIPE, "stderr": said, "text": True},
        )
        printed: list[str] = []
        reader = threading.Thread(target=lambda: printed.append(shell.stdout.read()))
        reader.start()
        threading.Thread(target=lambda: (shell.wait(), _ask(requests, "0", "", "end")), daemon=True).start()
        while (call := calls.read(65536).decode().split("\037")[:-1])[2] != "end":
            number, where, name, *words = call
            words = [re.sub("^/dev/fd/", f"/proc/{number}/fd/", word) for word in words]
            status = _forked(number, where, partial(programs[name], words))
            answers.with_suffix(f".{number}").write_text(f"{status}\n")
        reader.join()
    assert shell.returncode == 0, f"{text}\n{printed[0][-3000:]}{errors.read_text()[-3000:]}"
    return printed[0]


def _ask(requests: Path, *words: str) -> None:
    requests.write_text("".join(f"{word}\037" for word in words))


def _forked(number: str, folder: str, program: Callable[[], object]) -> int:
    """The exit status of ``program`` in a fork that has the folder and the streams of the process ``number``."""
    stdin, output, errors = (f"/proc/{number}/fd/{stream}" for stream in range(3))
    with open(stdin, "rb") as given, open(output, "ab") as printed, open(errors, "ab") as said:
        return Fork(program, printed, stdin=given.fileno(), errors=said, folder=folder).wait()

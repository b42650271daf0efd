"""Programs in forks of this process, which has imported fairseq: a new Python needs several seconds for that.

Not for a GPU: a process that has initialized CUDA cannot be forked.
"""

import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

_POLL_S = 0.005


class Fork:
    """``program()`` in a fork, with the part of subprocess.Popen's interface that tests need.

    It fails by raising or by returning another number than 0, and ends like a process that is killed: nothing of this
    process is flushed or cleaned up in it.

    Args:
        output: the open file for what it prints and logs; without one, the other end of a pipe is ``stdout``.
        errors: the open file for its standard error, if it is not that of its output.
    """

    def __init__(
        self,
        program: Callable[[], object],
        output: IO[bytes] | IO[str] | None = None,
        *,
        stdin: int | None = None,
        errors: IO[bytes] | IO[str] | None = None,
        folder: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        if output is None:
            reading, writing = os.pipe()
            self.stdout, output = open(reading, encoding="utf-8", errors="replace"), open(writing, "wb")  # noqa: SIM115
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.environ.update(environment or {})
                os.chdir(folder or ".")
                _take_streams(os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, output, errors or output)
                status = _status_of(program)
            finally:
                os._exit(status)
        if self.stdout:
            output.close()

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        """The exit status. Raises TimeoutError, and kills the fork, after ``timeout`` seconds."""
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                self.send_signal(signal.SIGKILL)
                raise TimeoutError(f"process {self.pid} did not end in {timeout:.0f} s")
            time.sleep(_POLL_S)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def __enter__(self) -> "Fork":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind:
            self.send_signal(signal.SIGKILL)
        if self.stdout:
            self.stdout.close()
        self.wait()


def _take_streams(stdin: int, output: IO[bytes] | IO[str], errors: IO[bytes] | IO[str]) -> None:
    for number, file in enumerate((stdin, output.fileno(), errors.fileno())):
        os.dup2(file, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    # As fairseq's commands log, to the standard output of now.
    form = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
    logging.basicConfig(format=form, level=logging.INFO, stream=sys.stdout, force=True)


def _status_of(program: Callable[[], object]) -> int:
    try:
        status = program()
    except SystemExit as ended:
        status = ended.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status if isinstance(status, int) else 0


def in_processes(count: int, program: Callable[[], object], timeout: float = 600) -> str:
    """Run ``program`` in ``count`` processes with the environment that torchrun gives them; returns what they print.

    All are killed when one fails, and after ``timeout`` seconds.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(count)}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        forks = [
            Fork(program, printed, environment={**address, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(count)
        ]
        # A process that fails may leave the others waiting.
        end = time.monotonic() + timeout
        while any(fork.poll() is None for fork in forks):
            if any(fork.poll() for fork in forks) or time.monotonic() > end:
                for fork in forks:
                    fork.send_signal(signal.SIGKILL)
            time.sleep(_POLL_S)
        printed.seek(0)
        text = printed.read()
    assert [fork.returncode for fork in forks] == [0] * count, text[-3000:]
    return text


def run_apart(program: Callable[[], object]) -> None:
    """Run ``program`` in a fork, and on a GPU in this process; raises AssertionError with its output if it fails."""
    import torch

    if torch.get_default_device().type == "cuda":
        program()
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        status = Fork(program, printed).wait()
        printed.seek(0)
        assert status == 0, printed.read()

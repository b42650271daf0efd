"""Order is kept, reading ahead is bounded, memory does not follow a file, and failures leave nothing behind."""

import os
import subprocess
import sys
import tracemalloc
from concurrent.futures.process import BrokenProcessPool
from itertools import count, islice
from pathlib import Path

import pytest

from corpora import parallel
from corpora.parallel import in_order, transform
from corpora.problem import report_in_one_line
from shared.steps import CommandError, once


@pytest.mark.parametrize("workers", [1, 2])
def test_order_is_kept_and_reading_ahead_is_bounded(workers: int) -> None:
    taken = 0

    def endless():
        nonlocal taken
        for taken in count():
            yield -taken

    results = in_order(abs, endless(), workers=workers)
    assert list(islice(results, 30)) == list(range(30))
    assert taken <= 30 + 2 * workers
    results.close()


def test_a_killed_worker_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        list(in_order(os._exit, [1, 1, 1], workers=2))

    assert report_in_one_line("prepare.py", main) == 1
    assert capsys.readouterr().err.splitlines() == [
        "prepare.py: a worker was killed, probably for want of memory: start again with fewer --workers"
    ]
    with pytest.raises(BrokenProcessPool):
        main()


def test_memory_does_not_follow_the_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text(f"{'word ' * 40}\n" * 60_000)
    tracemalloc.start()
    transform(_upper, source, target, what="upper", workers=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert target.stat().st_size == source.stat().st_size > 12_000_000
    assert peak < source.stat().st_size / 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_said_in_one_line_and_leaves_no_half_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.write_text("word\n" * 100)

    def make(target: Path) -> None:
        target.symlink_to("/dev/full")
        transform(_upper, source, target, what="upper", workers=1)

    assert report_in_one_line("prepare.py", lambda: once("tokens", tmp_path / "tokens", make)) == 1
    assert capsys.readouterr().err == (
        "prepare.py: no space left on the disk; free some and give the same command again\n"
    )
    assert not (tmp_path / "tokens").exists()


def test_a_command_without_space_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise CommandError("Traceback ...\nOSError: [Errno 28] No space left on device\nfairseq-preprocess ended")

    assert report_in_one_line("prepare.py", main) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_workers_do_not_outlive_a_killed_program(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from corpora.parallel import in_order\n"
        "if __name__ == '__main__':\n"
        "    results = in_order(time.sleep, iter(float, 1), workers=1 + 1)\n"
        "    next(results)\n"
        "    import multiprocessing\n"
        "    print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(parallel.__file__).parents[1])}
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == -9
    # The pipe of the workers' output is open as long as one of them lives: run() has waited for them.
    assert len(ended.stdout.split()) == 2


def _upper(lines: list[str]) -> list[str]:
    return [line.upper() for line in lines]

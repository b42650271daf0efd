"""Order is kept, reading ahead and memory are bounded, and failures leave nothing behind."""

import os
import subprocess
import sys
import tracemalloc
from itertools import count, islice
from pathlib import Path

import pytest

from fairseq_luna.command_line import command
from fairseq_luna.commands.preparing import parallel
from fairseq_luna.commands.preparing.parallel import in_order, transform
from fairseq_luna.files import make_unless_present


@pytest.mark.parametrize("workers", [1, 2])
def test_order_is_kept_and_reading_ahead_is_bounded(workers):
    taken = 0

    def endless():
        nonlocal taken
        for taken in count():
            yield -taken

    results = in_order(abs, endless(), workers=workers)
    assert list(islice(results, 30)) == list(range(30))
    assert taken <= 30 + 2 * workers
    results.close()


def test_a_killed_worker_is_reported_in_one_line(capsys):
    assert command(lambda _: list(in_order(os._exit, [1, 1, 1], workers=2)))() == 1
    assert capsys.readouterr().err.splitlines() == [
        "test_parallel.py: a worker was killed, probably because memory ran out: run again with fewer --workers"
    ]


def test_memory_does_not_grow_with_the_file(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text(f"{'word ' * 40}\n" * 60_000)
    tracemalloc.start()
    transform(_upper, source, target, what="upper", workers=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert target.stat().st_size == source.stat().st_size > 12_000_000
    assert peak < source.stat().st_size / 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_reported_in_one_line_and_leaves_no_half_file(tmp_path, capsys):
    source = tmp_path / "source"
    source.write_text("word\n" * 100)

    def make(target):
        target.symlink_to("/dev/full")
        transform(_upper, source, target, what="upper", workers=1)

    assert command(lambda _: make_unless_present("tokens", tmp_path / "tokens", make))() == 1
    assert capsys.readouterr().err == (
        "test_parallel.py: no space left on the disk; free some and run the same command again\n"
    )
    assert not (tmp_path / "tokens").exists()


def test_workers_do_not_outlive_a_killed_program(tmp_path):
    program = (
        "import os, sys, time; from fairseq_luna.commands.preparing.parallel import in_order\n"
        "if __name__ == '__main__':\n"
        "    results = in_order(time.sleep, iter(float, 1), workers=1 + 1)\n"
        "    next(results)\n"
        "    import multiprocessing\n"
        "    print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(parallel.__file__).parents[3])}
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == -9
    # run() returns when the last worker closes its output.
    assert len(ended.stdout.split()) == 2


def _upper(lines):
    return [line.upper() for line in lines]

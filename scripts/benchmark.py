"""Measure the attentions side by side, in one process, in turn.

python scripts/benchmark.py op            Luna's causal attention: naive, cumulative sum, chunked
"""

import argparse
import json
import multiprocessing
import platform
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cumulative_sum
from fairseq_luna.ops.luna_causal_attention import chunked, naive

Inputs = list[Tensor]
Op = Callable[..., tuple[Tensor, Tensor]]

FORMS: dict[str, Op] = {
    "naive": naive.luna_causal_attention,
    "cumulative sum": cumulative_sum.luna_causal_attention,
    "chunked": chunked.luna_causal_attention,
}
HEADS, SIZE, SLOTS = 16, 64, 32
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


def inputs(steps: int) -> Inputs:
    """q, k, v, pq, pk for a batch of one with 16 heads."""
    torch.manual_seed(0)
    lengths = [steps, steps, steps, SLOTS, steps]
    return [torch.randn(1, HEADS, length, SIZE, requires_grad=True) for length in lengths]


def forward_and_backward(op: Op, args: Inputs) -> list[Tensor]:
    """The output and the gradient of every input."""
    out, _ = op(*args)
    return [out.detach(), *torch.autograd.grad(out.sum(), args)]


def check(steps: int) -> None:
    """Refuse to measure a form that is not the same function: AssertionError."""
    args = inputs(steps)
    expected = forward_and_backward(FORMS["naive"], args)
    for op in FORMS.values():
        torch.testing.assert_close(forward_and_backward(op, args), expected, **TOLERANCE)


def seconds(op: Op, args: Inputs) -> float:
    start = time.perf_counter()
    forward_and_backward(op, args)
    return time.perf_counter() - start


def measure_time(steps: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of a forward and backward pass of each form, the forms in turn so that drift strikes them alike."""
    args = inputs(steps)
    seconds(FORMS["chunked"], args)
    times: dict[str, list[float]] = {name: [] for name in FORMS}
    for _ in range(repeats):
        for name, op in FORMS.items():
            times[name].append(seconds(op, args))
    return times


def peak_memory(name: str, steps: int) -> float:
    """MiB that a forward and backward pass of ``name`` adds to a fresh process's resident peak."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(peak_memory_here, (name, steps))


def peak_memory_here(name: str, steps: int) -> float:
    forward_and_backward(FORMS[name], inputs(16))  # what torch sets up once is not the op's
    args = inputs(steps)
    before = resident_peak()
    forward_and_backward(FORMS[name], args)
    return resident_peak() - before


def resident_peak() -> float:
    """The most MiB that this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage, this does not count what the parent held before the spawn
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def measure_op(lengths: list[int], repeats: int) -> list[dict[str, Any]]:
    """One row for each length and form."""
    check(130)
    rows = []
    for steps in lengths:
        times = measure_time(steps, repeats)
        fastest = statistics.median(times["chunked"])
        for name, values in times.items():
            median = statistics.median(values)
            row = {
                "T": steps,
                "form": name,
                "ms": 1000 * median,
                "ms_min": 1000 * min(values),
                "ms_max": 1000 * max(values),
                "times_chunked": median / fastest,
                "peak_mib": peak_memory(name, steps),
            }
            rows.append(row)
            print(as_line(row), flush=True)
    return rows


def as_line(row: dict[str, Any]) -> str:
    return (
        f"| {row['T']} | {row['form']} | {row['ms']:.1f} ({row['ms_min']:.1f} to {row['ms_max']:.1f}) "
        f"| {row['times_chunked']:.1f} | {row['peak_mib']:.0f} |"
    )


def machine() -> str:
    return f"{platform.machine()}, torch {torch.__version__}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    op = commands.add_parser("op", help="Luna's causal attention, forward and backward")
    op.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 1024, 2048, 8192], metavar="T")
    op.add_argument("--repeats", type=int, default=3)
    op.add_argument("--threads", type=int, default=1)
    op.add_argument("--json", type=Path, help="also write the rows to this file")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    print(
        f"Forward and backward, fp32, {HEADS} heads, D = {SIZE}, L = {SLOTS}; {machine()}, {args.threads} thread(s)\n"
    )
    print("| T | form | ms, median (min to max) | time / chunked | peak MiB |\n| --- | --- | --- | --- | --- |")
    rows = measure_op(args.lengths, args.repeats)
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

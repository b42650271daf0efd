"""The peak memory of a step, without what was allocated before it."""

import ctypes
import gc
import multiprocessing
import re
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

from .command import Column, Row
from .timing import Step

MIB = 2**20
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_MEMINFO = Path("/proc/meminfo")
_M_MMAP_THRESHOLD, _M_MMAP_MAX = -3, -4  # of glibc's malloc.h
_USABLE = 0.8  # share of the memory that the system reports as available
_OUT_OF_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory")


def peak_mib(prepare: Callable[..., Step], *args: Any, device: str, threads: int) -> float | None:
    """MiB that the step returned by ``prepare(*args)`` adds at its peak; None if memory ran out.

    On CUDA this is torch's allocated memory. On a CPU it is the resident memory of a fresh process, to which
    ``prepare`` and ``args`` are pickled, so that memory freed by an earlier step is not reused; freed memory is
    returned to the system at once, so that what the allocator keeps is not counted.
    """
    if device == "cuda":
        return _unless_too_large(_allocated_peak, prepare, args)
    # Each process is forked from one that has only done the slow imports.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "fairseq"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_unless_too_large, _resident_peak, prepare, args, threads).result()
        except BrokenProcessPool:
            print("a process that measured memory was killed, probably because memory ran out", file=sys.stderr)
            return None


def _unless_too_large(measure: Callable[..., float], *args: Any) -> float | None:
    try:
        return measure(*args)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return None
        raise


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether memory ran out; on a CPU only the message of torch's RuntimeError tells."""
    return isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)) is not None


def _allocated_peak(prepare: Callable[..., Step], args: tuple[Any, ...]) -> float:
    step = prepare(*args)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / MIB


def _resident_peak(prepare: Callable[..., Step], args: tuple[Any, ...], threads: int) -> float:
    _bound_memory()
    _return_freed_memory_at_once()
    torch.set_num_threads(threads)
    step = prepare(*args)
    _return_free_memory()
    if _CLEAR_REFS.exists():
        _CLEAR_REFS.write_text("5")  # Linux: resets the peak
    before = resident_peak()
    step()
    return (resident_peak() - before) / MIB


def _bound_memory() -> None:
    """On Linux, let too large allocations fail before the system kills a process."""
    if _MEMINFO.exists():
        available = _kibibytes("MemAvailable", _MEMINFO) * 1024
        bound = _kibibytes("VmSize", _STATUS) * 1024 + int(_USABLE * available)
        resource.setrlimit(resource.RLIMIT_AS, (bound, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _return_freed_memory_at_once() -> None:
    """Let glibc map every tensor of more than 64 KiB separately instead of taking some from one heap."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**16)
        mallopt(_M_MMAP_MAX, 2**15)  # of the 65,530 that Linux allows


def _return_free_memory() -> None:
    """Return freed memory to the system; the step would otherwise reuse it uncounted."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _kibibytes(name: str, table: Path) -> int:
    return int(re.search(rf"^{name}:\s*(\d+) kB", table.read_text(), re.MULTILINE)[1])


def resident_peak() -> int:
    """The peak resident memory of this process in bytes."""
    if _STATUS.exists():  # unlike getrusage, without the parent's memory before the fork
        return _kibibytes("VmHWM", _STATUS) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_column() -> Column:
    def cell(row: Row) -> str:
        if "peak_mib" not in row:
            return ""
        return "out of memory" if row["peak_mib"] is None else f"{row['peak_mib']:,.1f}"

    return Column("peak MiB", cell)

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

MIB = 2**20
_M_MMAP_THRESHOLD, _M_MMAP_MAX = -3, -4  # of glibc's malloc.h
_USABLE = 0.8  # share of the memory that the system reports as available
_OUT_OF_MEMORY = re.compile("can't allocate memory|not enough memory|out of memory")


def peak_mib(prepare: Callable[..., Callable[[], object]], *args: Any, device: str, threads: int) -> float | None:
    """MiB that the step returned by ``prepare(*args)`` adds at its peak; None if memory ran out.

    On CUDA this is torch's allocated memory. On a CPU it is the resident memory, as Linux counts it, of a fresh
    process, to which ``prepare`` and ``args`` are pickled, so that memory freed by an earlier step is not reused.
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


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether memory ran out; on a CPU only the message of torch's RuntimeError tells."""
    return isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)) is not None


def _unless_too_large(measure: Callable[..., float], *args: Any) -> float | None:
    try:
        return measure(*args)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return None
        raise


def _allocated_peak(prepare: Callable[..., Callable[[], object]], args: tuple[Any, ...]) -> float:
    step = prepare(*args)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / MIB


def _resident_peak(prepare: Callable[..., Callable[[], object]], args: tuple[Any, ...], threads: int) -> float:
    # Too large allocations fail before the system kills a process.
    bound = _kibibytes("VmSize", "self/status") + int(_USABLE * _kibibytes("MemAvailable", "meminfo"))
    resource.setrlimit(resource.RLIMIT_AS, (1024 * bound, resource.getrlimit(resource.RLIMIT_AS)[1]))
    glibc = ctypes.CDLL(None)
    if hasattr(glibc, "mallopt"):  # every tensor of more than 64 KiB is returned to the system when it is freed
        glibc.mallopt(_M_MMAP_THRESHOLD, 2**16)
        glibc.mallopt(_M_MMAP_MAX, 2**15)  # of the 65,530 that Linux allows
    torch.set_num_threads(threads)
    step = prepare(*args)
    gc.collect()
    if hasattr(glibc, "malloc_trim"):  # the step would otherwise reuse freed memory uncounted
        glibc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _kibibytes("VmHWM", "self/status")
    step()
    return (_kibibytes("VmHWM", "self/status") - before) / 1024


def _kibibytes(name: str, table: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB", Path("/proc", table).read_text(), re.MULTILINE)
    assert found is not None, f"/proc/{table} has no {name}"
    return int(found[1])

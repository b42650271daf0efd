"""A function on fixed memory as one CUDA graph."""

from collections.abc import Callable
from typing import Any

import torch

# Turns a function into one that does the same on the same memory. The second function restores that memory.
Record = Callable[[Callable[[], None], Callable[[], None]], Callable[[], None]]

WARM_UP = 2  # calls before the capture, in which kernels are loaded and workspaces allocated


def record(function: Callable[[], None], reset: Callable[[], None], *, pool: Any = None) -> Callable[[], None]:
    """Capture ``function``, which reads and writes the same memory at each call; the result launches all its kernels.

    New random numbers are drawn at each launch. The graph keeps no reference to the tensors that existed before: the
    caller keeps all that ``function`` reads.

    Args:
        function: is called three times: twice to warm up, and for the capture, which executes nothing. The tensors that
            the last call makes and keeps are those that the graph writes.
        reset: restores what ``function`` writes; it is called before each call to warm up, and at the end.
        pool: a handle from ``torch.cuda.graph_pool_handle``. Graphs with the same pool share the memory of their
            intermediate results and must not run at the same time. None: a pool for this graph.

    Raises:
        RuntimeError: the function waits for the device, which a graph cannot, or there is not enough memory.
    """
    current = torch.cuda.current_stream()
    generator = torch.cuda.default_generators[current.device.index]
    random_state = generator.clone_state()
    graph = torch.cuda.CUDAGraph()
    try:
        warm_up(function, reset)
        # Only this thread is watched for calls that a capture forbids: a data loader may pin memory meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            function()
    except BaseException:
        # torch leaves its generator in the state of a capture, in which no other kernel may draw from it.
        generator.graphsafe_set_state(random_state)
        raise
    finally:
        torch.cuda.set_stream(current)  # torch does not return to it when a capture fails
        reset()
    return graph.replay


def warm_up(function: Callable[[], None], reset: Callable[[], None]) -> None:
    """Call ``function`` ``WARM_UP`` times on another stream, as torch asks of what is captured.

    Raises:
        RuntimeError: the last call waits for the device. An error here, unlike one during the capture, leaves no trace.
    """
    current, stream, before = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.get_sync_debug_mode()
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            for call in range(WARM_UP):
                reset()
                if call == WARM_UP - 1:
                    torch.cuda.set_sync_debug_mode("error")
                function()
    finally:
        torch.cuda.set_sync_debug_mode(before)
        current.wait_stream(stream)

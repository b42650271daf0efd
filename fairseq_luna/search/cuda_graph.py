"""A function on fixed memory as one CUDA graph."""

from collections.abc import Callable

import torch

WARM_UP = 2  # calls before the capture, in which kernels are loaded and workspaces allocated


def record(function: Callable[[], None], reset: Callable[[], None]) -> Callable[[], None]:
    """Capture ``function``, which reads and writes the same memory at each call; the result launches all its kernels.

    ``reset`` restores what ``function`` writes; it is called before each call of ``function``, and at the end.

    Raises:
        RuntimeError: the function waits for the device, which a graph cannot.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            reset()
            function()
        reset()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()  # is not executed
    return graph.replay

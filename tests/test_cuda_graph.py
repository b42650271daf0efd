"""The order in which a CUDA graph is recorded, with stand-ins for torch's functions: there is no GPU here."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from fairseq_luna import cuda_graph

DEFAULT = SimpleNamespace(device=SimpleNamespace(index=0), wait_stream=lambda other: None)


class Cuda:
    """As much of ``torch.cuda`` as a recording calls; notes what happens."""

    def __init__(self, patch, *, fails_in_capture=False):
        self.events, self.stream, self.sync, self.fails_in_capture = [], DEFAULT, "default", fails_in_capture
        generator = SimpleNamespace(
            clone_state=lambda: "state", graphsafe_set_state=lambda state: self.events.append(f"generator: {state}")
        )
        replacements = {
            "current_stream": lambda: self.stream,
            "default_generators": [generator],
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: self.events.append("replay")),
            "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
            "stream": self.on_stream,
            "set_stream": lambda stream: setattr(self, "stream", stream),
            "graph": self.capture,
            "get_sync_debug_mode": lambda: self.sync,
            "set_sync_debug_mode": lambda mode: setattr(self, "sync", mode),
        }
        for name, replacement in replacements.items():
            patch.setattr(torch.cuda, name, replacement)

    @contextmanager
    def on_stream(self, stream):
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    @contextmanager
    def capture(self, graph, *, pool, capture_error_mode):
        self.events.append(f"capture in {pool}, {capture_error_mode}")
        self.stream = "stream of the capture"
        yield
        if self.fails_in_capture:  # torch leaves the stream as it is then
            raise RuntimeError("operation failed due to a previous error during capture")
        self.stream = DEFAULT

    def function(self):
        self.events.append(f"function, synchronizing is {self.sync}")

    def record(self):
        return cuda_graph.record(self.function, lambda: self.events.append("reset"), pool="pool")


def test_a_function_is_warmed_up_captured_and_replayed(monkeypatch):
    cuda = Cuda(monkeypatch)
    replay = cuda.record()
    assert cuda.events == [
        *("reset", "function, synchronizing is default"),
        *("reset", "function, synchronizing is error"),
        *("capture in pool, thread_local", "function, synchronizing is default"),
        "reset",
    ]
    replay()
    assert cuda.events[-1] == "replay"


def test_a_failed_capture_leaves_stream_generator_and_memory_as_they_were(monkeypatch):
    cuda = Cuda(monkeypatch, fails_in_capture=True)
    with pytest.raises(RuntimeError, match="previous error"):
        cuda.record()
    assert cuda.stream is DEFAULT
    assert cuda.events[-2:] == ["generator: state", "reset"]


def test_a_function_that_waits_for_the_device_is_not_captured(monkeypatch):
    cuda = Cuda(monkeypatch)

    def function():
        if cuda.sync == "error":
            raise RuntimeError("called a synchronizing CUDA operation")

    cuda.function = function
    with pytest.raises(RuntimeError, match="synchronizing"):
        cuda.record()
    assert cuda.sync == "default" and cuda.stream is DEFAULT
    assert not any("capture" in event for event in cuda.events)

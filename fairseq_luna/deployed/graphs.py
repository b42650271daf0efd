"""Graphs of an exported model in onnxruntime, and the decoder state between two steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime

from ..usage_error import UsageError

Array = np.ndarray[Any, Any]
Values = dict[str, Any]  # onnxruntime's tensors, which one graph hands to the next without a copy
BOS, PAD, EOS, UNK = range(4)  # indices in fairseq's dictionaries
CONSTANT = "/constants/"  # in the names of tensors that depend on the source alone
NEW = "new/"  # in front of the names of tensors that a step changed
# Optimizations of onnxruntime that are left out: one kernel for a sum and its layer norm takes three times as long on a
# CPU as two additions and a layer norm.
SLOWER = ["SkipLayerNormFusion"]


class DecoderState:
    """State of the decoder: constants with a row per sentence, and other tensors with a row per hypothesis."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def keep_sentences(self, rows: Array) -> None:
        """Select rows of the constants. The next step selects the rows of the other tensors."""
        for name, value in self.values.items():
            if CONSTANT in name:
                self.values[name] = tensor(value.numpy()[rows])


class Graphs:
    """An encoder with the decoder's first step, in one graph for each range of source lengths, and a further step.

    Args:
        folder: folder with the files.
        starts: ``file``, ``shortest`` and ``longest`` source length of each graph of the encoder, in ascending order.
        threads: number of threads for one graph.
    """

    def __init__(
        self, folder: Path, starts: Sequence[Mapping[str, Any]], *, vocabulary_size: int, threads: int
    ) -> None:
        self.folder, self.starts, self.vocabulary_size = folder, starts, vocabulary_size
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.sessions: dict[str, onnxruntime.InferenceSession] = {}
        self.outputs: dict[str, list[str]] = {}
        self.loading = Lock()

    def session(self, file: str) -> onnxruntime.InferenceSession:
        """The graph in ``file``, loaded at its first use. Raises UsageError if it cannot be loaded."""
        with self.loading:  # threads may share the graphs
            if file not in self.sessions:
                path = self.folder / file
                try:
                    session = onnxruntime.InferenceSession(
                        path, self.options, ["CPUExecutionProvider"], disabled_optimizers=SLOWER
                    )
                except Exception as error:  # onnxruntime's have no common class
                    reason = str(error).splitlines()[0]
                    raise UsageError(f"{path}: cannot be loaded ({reason}); export the model again") from error
                self.sessions[file] = session
                self.outputs[file] = [output.name for output in session.get_outputs()]
            return self.sessions[file]

    def run(self, file: str, inputs: Values) -> Values:
        session = self.session(file)
        binding = session.io_binding()  # quicker than run_with_ort_values, which looks at every value first
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs[file]:
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        return dict(zip(self.outputs[file], binding.get_outputs(), strict=True))

    def start(self, source: Array) -> tuple[Array, DecoderState]:
        """Encode ``source (B, S)``: the log-probabilities ``(B, V)`` of the first token, and the state."""
        steps = source.shape[1]
        graph = next(graph for graph in self.starts if graph["longest"] >= steps)
        source = np.pad(source, ((0, 0), (0, max(0, graph["shortest"] - steps))), constant_values=PAD)
        results = self.run(graph["file"], {"source": tensor(source)})
        return results.pop("log_probs").numpy(), DecoderState(results)

    def step(
        self, state: DecoderState, tokens: Array, scores: Array, rows: Array, length: int
    ) -> tuple[Array, Array, Array]:
        """Advance ``state`` by the newest ``tokens (B, K)``, which have the total ``scores (B, K)``.

        Args:
            rows: ``(B, K)``, the row of the state that each token continues.
            length: tokens so far, which is the position of the next one.

        Returns:
            Total scores ``(B, 2 K)`` of the best continuations, their places among the K V ones, and the total scores
            of the translations that end here, ``(B, K)``.
        """
        inputs = {
            "words": tensor(tokens),
            "scores": tensor(scores.astype(np.float32)),
            "rows": tensor(rows.astype(np.int64).reshape(-1)),
            "positions": tensor(np.zeros(length, dtype=np.uint8)),
        }
        results = self.run("step.onnx", inputs | state.values)
        best, index, ends = (results.pop(name).numpy() for name in ("best", "places", "ends"))
        state.values.update({name.removeprefix(NEW): value for name, value in results.items()})
        return best, index, ends


def tensor(array: Array) -> Any:
    """Convert ``array`` to a tensor of onnxruntime."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))

"""The graphs of a model."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from onnx import ModelProto
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from ...deployed.graphs import EOS, NEW, PAD
from ..progress import working
from .modules import Start, Step
from .operators import OPERATORS

# Source lengths of an encoder whose graphs have one length each: a sentence is padded to the next of them.
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# What torch raises for a model that it cannot export; there is no common class.
CANNOT = (torch._dynamo.exc.UserError, torch.onnx.OnnxExporterError, RuntimeError, ValueError)
SHORTEST = 2  # source tokens that a graph of any length takes; torch.export makes a constant of 1
SENTENCES, BEAM = 3, 5  # of the examples; a graph takes any number


class Graph(NamedTuple):
    """A graph, and the source lengths that it takes; a step reads no source."""

    file: str
    model: ModelProto
    shortest: int = 0
    longest: int = 0


def graphs_of(model: nn.Module, longest: int) -> Iterator[Graph]:
    """The graphs of ``model`` for sources of at most ``longest`` pieces: the step, then its starts by length."""
    start, step = Start(model), Step(model)
    source = example(8)
    with quiet(), torch.no_grad():
        _, state = start(source)
        yield step_graph(step, state)  # first: a decoder that cannot be exported is found before the long part
        names = ["source"], ["log_probs", *state]
        try:
            with working("making the encoder's graph"):
                axes = {0: Dim("batch"), 1: Dim("source", min=SHORTEST, max=longest)}
                program = exported(start, (source,), (axes,))
            with working("writing it as ONNX"):
                made = onnx_of(program, *names)
        # Its shapes, or an operator's, depend on the length as a number.
        except CANNOT:
            for length in [length for length in LENGTHS if length < longest] + [longest]:
                with working(f"making the encoder's graph for {length} of {longest} pieces"):
                    program = exported(start, (example(length),), ({0: Dim("batch")},))
                    made = onnx_of(program, *names)
                yield Graph(f"start_{length}.onnx", made, length, length)
        else:
            yield Graph("start.onnx", made, SHORTEST, longest)


def step_graph(step: Step, state: dict[str, Tensor]) -> Graph:
    """The graph of a later step of the decoder, after the ``state`` of the first."""
    words, rows = torch.full((SENTENCES, BEAM), EOS), torch.arange(SENTENCES).repeat_interleave(BEAM)
    inputs = (words, torch.zeros(words.shape), rows, torch.zeros(2, dtype=torch.uint8), state)
    moving = step(*inputs)[-1]
    inputs = (*inputs[:2], torch.arange(SENTENCES * BEAM), *inputs[3:-1], state | moving)
    given = ["words", "scores", "rows", "positions", *inputs[-1]]
    with working("making the decoder's graph"):
        program = exported(step, inputs, tuple(any_size(x) for x in inputs))
        made = onnx_of(program, given, ["best", "places", "ends", *(NEW + name for name in moving)])
    return Graph("step.onnx", made)


def example(length: int) -> Tensor:
    """Sources ``(SENTENCES, length)`` of different lengths."""
    source = torch.full((SENTENCES, length), EOS)
    for row in range(1, SENTENCES):
        source[row, length - row * length // SENTENCES :] = PAD
    return source


def any_size(x: Any) -> Any:
    """Every axis of a tensor, or of those in a dictionary, free."""
    return (
        {name: any_size(y) for name, y in x.items()} if isinstance(x, dict) else dict.fromkeys(range(x.dim()), Dim.AUTO)
    )


def exported(module: nn.Module, inputs: tuple[Any, ...], axes: tuple[Any, ...]) -> ExportedProgram:
    program = export(module, inputs, dynamic_shapes=axes, strict=False)
    program._guards_code = []  # torch.onnx cannot read those of a dictionary with tensors that nothing uses
    return program


def onnx_of(program: ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]) -> ModelProto:
    made = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        input_names=inputs,
        output_names=outputs,
        custom_translation_table=OPERATORS,
    )
    assert made is not None
    return made.model_proto


@contextmanager
def quiet() -> Iterator[None]:
    """Without what torch and onnxscript say about their own code."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)

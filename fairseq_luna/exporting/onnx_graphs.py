"""ONNX graphs of a model: the encoder with the decoder's first step, and a later step of the decoder."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxscript.optimizer
import torch
from onnx import ModelProto
from onnxscript import opset20
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from .. import silenced_logs
from ..deployed.graphs import EOS, NEW, PAD
from ..progress import show_elapsed_time
from .decoder_step import FirstStepGraph, NextStepGraph

# Source lengths of encoders whose graphs take one length each. A sentence is padded to the next length.
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# Exceptions of torch for a model that it cannot export; they have no common class.
CANNOT = (torch._dynamo.exc.UserError, torch.onnx.OnnxExporterError, RuntimeError, ValueError)
SHORTEST = 2  # minimum source length of a graph of any length; torch.export would turn a size of 1 into a constant
SENTENCES, BEAM = 3, 5  # sizes of the examples; a graph takes any size


class Graph(NamedTuple):
    """A graph, and the source lengths that it takes; a graph of a step reads no source."""

    file: str
    model: ModelProto
    shortest: int = 0
    longest: int = 0


def make_graphs(model: nn.Module, longest: int) -> Iterator[Graph]:
    """Make the graphs of ``model``: the step, then the starts for sources of up to ``longest`` tokens, by length."""
    start, step = FirstStepGraph(model), NextStepGraph(model)
    source = example_source(8)
    # torch and onnxscript warn about their own code.
    with silenced_logs.silence_all_loggers(logging.WARNING), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        _, state = start(source)
        yield step_graph(step, state)  # first, because a decoder that cannot be exported should be found early
        names = ["source"], ["log_probs", *state]
        try:
            with show_elapsed_time("making the encoder's graph"):
                axes = {0: Dim("batch"), 1: Dim("source", min=SHORTEST, max=longest)}
                program = export_program(start, (source,), (axes,))
            with show_elapsed_time("writing it as ONNX"):
                onnx_model = to_onnx(program, *names)
        # Some shapes depend on the length as a number.
        except CANNOT:
            for length in [length for length in LENGTHS if length < longest] + [longest]:
                with show_elapsed_time(f"making the encoder's graph for {length} of {longest} pieces"):
                    program = export_program(start, (example_source(length),), ({0: Dim("batch")},))
                    onnx_model = to_onnx(program, *names)
                yield Graph(f"start_{length}.onnx", onnx_model, length, length)
        else:
            yield Graph("start.onnx", onnx_model, SHORTEST, longest)


def step_graph(step: NextStepGraph, state: dict[str, Tensor]) -> Graph:
    """Make the graph of a later step of the decoder, which continues the ``state`` of the first step."""
    tokens, rows = torch.full((SENTENCES, BEAM), EOS), torch.arange(SENTENCES).repeat_interleave(BEAM)
    inputs = (tokens, torch.zeros(tokens.shape), rows, torch.zeros(2, dtype=torch.uint8), state)
    changed_state = step(*inputs)[-1]
    inputs = (*inputs[:2], torch.arange(SENTENCES * BEAM), *inputs[3:-1], state | changed_state)
    input_names = ["words", "scores", "rows", "positions", *inputs[-1]]
    with show_elapsed_time("making the decoder's graph"):
        program = export_program(step, inputs, tuple(dynamic_axes(x) for x in inputs))
        onnx_model = to_onnx(program, input_names, ["best", "places", "ends", *(NEW + name for name in changed_state)])
    return Graph("step.onnx", onnx_model)


def example_source(length: int) -> Tensor:
    """Example sources ``(SENTENCES, length)`` of different lengths."""
    source = torch.full((SENTENCES, length), EOS)
    for row in range(1, SENTENCES):
        source[row, length - row * length // SENTENCES :] = PAD
    return source


def dynamic_axes(x: Any) -> Any:
    """Mark every axis of a tensor, or of the tensors in a dictionary, as dynamic."""
    return (
        {name: dynamic_axes(y) for name, y in x.items()}
        if isinstance(x, dict)
        else dict.fromkeys(range(x.dim()), Dim.AUTO)
    )


def export_program(module: nn.Module, inputs: tuple[Any, ...], axes: tuple[Any, ...]) -> ExportedProgram:
    program = export(module, inputs, dynamic_shapes=axes, strict=False)
    program._guards_code = []  # torch.onnx cannot read guards of a dictionary with unused tensors
    return program


def to_onnx(program: ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]) -> ModelProto:
    onnx_model = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        optimize=False,
        input_names=inputs,
        output_names=outputs,
        custom_translation_table=OPERATORS,
    )
    assert onnx_model is not None
    # Once: torch.onnx does it twice, and onnxruntime, which optimizes further, gets to the same number of nodes.
    onnxscript.optimizer.optimize(onnx_model.model, num_iterations=1)
    return onnx_model.model_proto


# ONNX for operators of torch that have none, or a slow one.
BOOL, INT64, FP64 = onnx.TensorProto.BOOL, onnx.TensorProto.INT64, onnx.TensorProto.DOUBLE
Value = Any  # of a graph that is being made
op: Any = opset20  # its type stubs cover single operators only


def lerp(start: Value, end: Value, weight: Value) -> Value:
    return op.Add(start, op.Mul(weight, op.Sub(end, start)))


def cosine_by_sine(x: Value) -> Value:
    """Make cos(x) of fp64 sin(x + pi/2): onnxruntime 1.23, the last for Python 3.10, has no cosine of fp64."""
    if x.dtype != FP64:
        return op.Cos(x)
    return op.Sin(op.Add(x, op.Constant(value=onnx.numpy_helper.from_array(np.array(np.pi / 2)))))


def attention(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """The queries are scaled, which are fewer than the keys; onnxruntime transposes these while it multiplies."""
    assert not (dropout_p or enable_gqa)
    scaled = op.Mul(query, op.Constant(value_float=float(scale or query.shape[-1] ** -0.5)))
    scores = op.MatMul(scaled, op.Transpose(key, perm=[0, 1, 3, 2]))
    if attn_mask is not None:
        scores = op.Add(scores, attn_mask)
    if is_causal:
        sizes = op.Concat(op.Shape(query, start=-2, end=-1), op.Shape(key, start=-2, end=-1), axis=0)
        seen = op.Trilu(op.ConstantOfShape(sizes, value=onnx.helper.make_tensor("one", INT64, [1], [1])), upper=0)
        scores = op.Where(op.Cast(seen, to=BOOL), scores, op.CastLike(op.Constant(value_float=-np.inf), scores))
    return op.MatMul(op.Softmax(scores, axis=-1), value)


def searchsorted(
    sorted_sequence: Value,
    values: Value,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value = None,
) -> Value:
    """The number of elements that are at most as large as each value: there are few."""
    assert right and not (out_int32 or side or sorter)
    smaller = op.LessOrEqual(
        op.Unsqueeze(sorted_sequence, op.Constant(value_ints=[-2])), op.Unsqueeze(values, op.Constant(value_ints=[-1]))
    )
    return op.ReduceSum(op.Cast(smaller, to=INT64), op.Constant(value_ints=[-1]), keepdims=0)


def sort(values: Value, stable: bool = True, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """ONNX's TopK keeps equal values in order. In onnxruntime not all types have it; fp64 holds their values."""
    sizes = op.Shape(values, start=dim % len(values.shape), end=dim % len(values.shape) + 1)
    sorted_values, places = op.TopK(op.Cast(values, to=FP64), sizes, axis=dim, largest=int(descending))
    return op.CastLike(sorted_values, values), places


def remainder(x: Value, divisor: Value) -> Value:
    """Also by a size that is free."""
    return op.Mod(x, op.CastLike(divisor, x))


def repeat_interleave(x: Value, repeats: Value, dim: int | None = None, output_size: Value = None) -> Value:
    """Along the first axis, also where ``repeats`` is free."""
    assert dim == 0
    one, first = op.Constant(value_ints=[1]), op.Constant(value_ints=[-1])
    others = op.Shape(x, start=1)
    repeated = op.Expand(op.Unsqueeze(x, one), op.Concat(one, op.Reshape(repeats, first), others, axis=0))
    return op.Reshape(repeated, op.Concat(first, others, axis=0))


def solve_triangular(
    matrix: Value, sides: Value, upper: bool = False, left: bool = True, unitriangular: bool = False
) -> Value:
    """By the inverse: first of all blocks of one row, then of twice as many at each time.

    ``[[A, 0], [B, C]]`` has the inverse ``[[1/A, 0], [-1/C B 1/A, 1/C]]``.
    """
    assert unitriangular and not (left or upper)
    size = matrix.shape[-1]
    inverse = op.Constant(value=onnx.numpy_helper.from_array(np.eye(size, dtype=np.float32)))
    for level in range((size - 1).bit_length()):
        block = np.arange(size)[:, None] >> level
        below = ((block == block.T + 1) & (block % 2 == 1)).astype(np.float32)
        product = op.MatMul(op.Mul(matrix, op.Constant(value=onnx.numpy_helper.from_array(below))), inverse)
        inverse = op.Sub(inverse, op.MatMul(inverse, product))
    return op.MatMul(sides, inverse)


def softplus(x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """Without torch's linear part above a threshold: onnxruntime's does not overflow there."""
    scale = op.Constant(value_float=float(beta))
    return op.Div(op.Softplus(op.Mul(x, scale)), scale)


OPERATORS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.cos.default: cosine_by_sine,
    torch.ops.aten.lerp.Tensor: lerp,
    torch.ops.aten.linalg_solve_triangular.default: solve_triangular,
    torch.ops.aten.remainder.Scalar: remainder,
    torch.ops.aten.repeat_interleave.self_int: repeat_interleave,
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.sort.stable: sort,
    torch.ops.aten.softplus.default: softplus,
    torch.ops.aten.scaled_dot_product_attention.default: attention,
}

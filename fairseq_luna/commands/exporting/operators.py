"""ONNX for operators of torch that have none, or a slow one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnxscript import opset20

BOOL, INT64, FP64 = onnx.TensorProto.BOOL, onnx.TensorProto.INT64, onnx.TensorProto.DOUBLE
Value = Any  # of a graph that is being made
op: Any = opset20  # whose types are of single operators


def lerp(start: Value, end: Value, weight: Value) -> Value:
    return op.Add(start, op.Mul(weight, op.Sub(end, start)))


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
    found, places = op.TopK(op.Cast(values, to=FP64), sizes, axis=dim, largest=int(descending))
    return op.CastLike(found, values), places


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
    torch.ops.aten.lerp.Tensor: lerp,
    torch.ops.aten.linalg_solve_triangular.default: solve_triangular,
    torch.ops.aten.remainder.Scalar: remainder,
    torch.ops.aten.repeat_interleave.self_int: repeat_interleave,
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.sort.stable: sort,
    torch.ops.aten.softplus.default: softplus,
    torch.ops.aten.scaled_dot_product_attention.default: attention,
}

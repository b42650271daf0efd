"""Arithmetic of sizes that may be symbols, in a graph for any size of a batch."""

import torch


def smaller_size(size: int, other: int) -> int:
    """The smaller of two sizes, which the graph computes: nothing is decided when it is traced.

    torch.compile does this for ``min``, and traces ``torch.sym_min`` of numbers only since torch 2.13; torch.export
    would decide ``min``, and fix the answer in its graph.
    """
    return min(size, other) if torch.compiler.is_dynamo_compiling() else torch.sym_min(size, other)

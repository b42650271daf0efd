"""Arithmetic of sizes that may be symbols, in a graph for any size of a batch."""

import torch


def smaller_size(size: int, other: int) -> int:
    """The smaller of two sizes, which the graph computes: nothing is decided when it is traced.

    torch.compile does this for ``min``, and with torch 2.11 cannot trace ``torch.sym_min`` of numbers. torch.export
    would decide ``min``, and fix the answer in its graph.
    """
    return min(size, other) if torch.compiler.is_dynamo_compiling() else torch.sym_min(size, other)


def missing_steps(steps: int, size: int) -> int:
    """How many steps are missing for the last chunk of ``size`` steps to be full.

    ``-steps % size`` is the same number in Python, but inductor of torch 2.6 writes the remainder of C++, which is
    negative, and leaves the places after the last step without a value: docs/reliability.md.
    """
    return -(-steps // size) * size - steps

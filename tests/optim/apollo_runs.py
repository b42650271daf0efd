"""Small problems for Apollo, and runs over them for its tests to compare."""

import torch
from torch import nn

from fairseq_luna.optim.apollo import Apollo

SHAPES = [(7, 5), (5,), (4, 3, 2), (1,), ()]


def random_problem(shapes=SHAPES, steps=8, dtype=torch.float64):
    """Initial tensors, and for each step a gradient for each: smooth enough for the Hessian to follow."""
    generator = torch.Generator().manual_seed(0)

    def draw(shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    init = [draw(s) for s in shapes]
    slopes = [draw(s) for s in shapes]
    grads = [[(a + 0.3 * draw(a.shape)).to(dtype) for a in slopes] for _ in range(steps)]
    return [p.to(dtype) for p in init], grads


def trajectory(optimizer, params, grads):
    steps = []
    for gradients in grads:
        for p, g in zip(params, gradients, strict=True):
            p.grad = g.clone()
        optimizer.step()
        steps.append([p.detach().clone() for p in params])
    return steps


def run(init, grads, **options):
    params = [nn.Parameter(p.clone()) for p in init]
    return trajectory(Apollo(params, **options), params, grads)


def assert_same(actual, expected, **tolerance):
    for ours, theirs in zip(actual, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, **tolerance)

"""Apollo as its paper writes it: one tensor at a time, without rearrangements."""

from collections.abc import Iterable

import torch
from torch import Tensor


def apollo_trajectory(
    init: Iterable[Tensor],
    grads: Iterable[list[Tensor]],
    *,
    lr: float,
    beta: float = 0.9,
    eps: float = 1e-4,
    rebound: str = "constant",
    weight_decay: float = 0.0,
    weight_decay_type: str | None = None,
) -> list[list[Tensor]]:
    """The parameters after each step, computed in their own dtype."""
    params = [p.clone() for p in init]
    state = [[torch.zeros_like(p) for _ in range(3)] for p in params]
    decay_type = weight_decay_type or {"constant": "L2", "belief": "decoupled"}[rebound]
    trajectory = []
    for t, gradients in enumerate(grads, start=1):
        alpha = (1 - beta) / (1 - beta**t)
        for i, (p, g) in enumerate(zip(params, gradients, strict=True)):
            m, b, d = state[i]
            if decay_type == "L2":
                g = g + weight_decay * p
            delta = g - m
            m = m + alpha * delta
            n = (d**4).sum() ** 0.25 + (eps / 0.01 if rebound == "constant" else eps)
            d = d / n
            b = b + (-alpha * (delta / n * d).sum() - (b * d * d).sum()) * d * d
            if rebound == "constant":
                h = b.abs().clamp(min=0.01)
            else:
                h = torch.maximum(b.abs(), delta.abs().max()) + eps / alpha
            d = m / h
            if decay_type == "decoupled":
                d = d + weight_decay * p
            if decay_type == "stable":
                d = d + weight_decay / h.mean() * p
            params[i] = p - lr * d
            state[i] = [m, b, d]
        trajectory.append([p.clone() for p in params])
    return trajectory

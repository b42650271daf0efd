"""The positive functions that weigh a step in Luna's causal pack attention.

A softmax over time would look into the future; these look at one step alone. Both give 1 at a score of 0.
"""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

LN_2 = math.log(2.0)


def softplus(scores: Tensor) -> Tensor:
    """``log(1 + exp(ln 2 * s)) / ln 2``."""
    # Beyond the threshold torch returns s itself: 40 is where fp64 cannot tell the two apart.
    return F.softplus(scores, beta=LN_2, threshold=40.0)


def elu(scores: Tensor) -> Tensor:
    """``elu(s) + 1``: exp(s) below 0, s + 1 above."""
    return F.elu(scores) + 1


PACK_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"softplus": softplus, "elu": elu}


def pack_activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function called ``name``; ValueError if there is none."""
    if name not in PACK_ACTIVATIONS:
        raise ValueError(f"--luna-activation {name}: choose one of {', '.join(PACK_ACTIVATIONS)}")
    return PACK_ACTIVATIONS[name]

"""The linear maps of an attention."""

import math

from fairseq.modules.quant_noise import quant_noise
from torch import nn

INPUT_GAIN = 1 / math.sqrt(2)  # as fairseq draws the projections of its own attention


def input_projection(size: int, *, bias: bool, q_noise: float, qn_block_size: int) -> nn.Module:
    """A ``size`` to ``size`` map for queries, keys or values; Xavier uniform, gain 1/sqrt(2)."""
    linear = nn.Linear(size, size, bias=bias)
    nn.init.xavier_uniform_(linear.weight, gain=INPUT_GAIN)
    return quant_noise(linear, q_noise, qn_block_size)


def output_projection(size: int, *, bias: bool, q_noise: float, qn_block_size: int) -> nn.Module:
    """A ``size`` to ``size`` map for what an attention returns; Xavier uniform, bias 0."""
    linear = nn.Linear(size, size, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return quant_noise(linear, q_noise, qn_block_size)

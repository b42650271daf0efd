"""The linear maps of an attention."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all

from ..ops.folded_attention import Affine
from ..usage_error import UsageError

INPUT_GAIN = 1 / math.sqrt(2)  # as in fairseq's MultiheadAttention


@dataclass(frozen=True, kw_only=True)
class LinearMaps:
    """Creates the linear maps of one attention.

    Args:
        size: channels in and out.
        bias: maps have a bias.
        q_noise, qn_block_size: fairseq's quantization noise.
    """

    size: int
    bias: bool
    q_noise: float
    qn_block_size: int

    def input_projection(self, *, inputs: int = 1, outputs: int | None = None, bias: bool | None = None) -> nn.Module:
        """Create a map for queries, keys, values or gates, as fairseq does: Xavier uniform with gain 1/sqrt(2).

        Args:
            inputs: number of concatenated vectors of ``size`` channels that it reads.
            outputs: output channels; None = ``size``.
            bias: it has a bias; None = as all maps.
        """
        bias = self.bias if bias is None else bias
        linear = nn.Linear(inputs * self.size, outputs or self.size, bias=bias)
        nn.init.xavier_uniform_(linear.weight, gain=INPUT_GAIN)
        return self.with_quant_noise(linear)

    def output_projection(self, *, inputs: int = 1, bias: bool | None = None) -> nn.Module:
        """Create the map of the output: Xavier uniform, bias 0. Arguments: :meth:`input_projection`."""
        bias = self.bias if bias is None else bias
        linear = nn.Linear(inputs * self.size, self.size, bias=bias)
        nn.init.xavier_uniform_(linear.weight)
        if bias:
            nn.init.zeros_(linear.bias)
        return self.with_quant_noise(linear)

    def with_quant_noise(self, linear: nn.Linear) -> nn.Module:
        """Add fairseq's quantization noise to ``linear``, if there is any.

        Raises:
            UsageError: there is no fairseq to make it.
        """
        if self.q_noise <= 0:
            return linear
        try:
            from fairseq.modules.quant_noise import quant_noise
        except ImportError as error:
            raise UsageError(f"q_noise {self.q_noise}: install fairseq, whose noise it is, or leave it out") from error
        return quant_noise(linear, self.q_noise, self.qn_block_size)


def project_together(x: Tensor, *modules: nn.Module) -> tuple[Tensor, ...]:
    """The results of several maps of ``x (..., C)`` to the same number of channels.

    In training one matrix product if all are plain linear maps: its gradient takes a third of the kernels.
    """
    affines = [affine_of(module) for module in modules] if torch.is_grad_enabled() else [None]
    if None in affines:
        return tuple(module(x) for module in modules)
    weights, biases = zip(*affines, strict=True)
    without = sum(bias is None for bias in biases)
    if 0 < without < len(biases):
        return tuple(module(x) for module in modules)
    projected = F.linear(x, torch.cat(weights), None if without else torch.cat(biases))
    return projected.chunk(len(modules), dim=-1)


def affine_of(module: nn.Module) -> Affine | None:
    """Weight and bias of ``module``, or None if calling it may do more than this linear map.

    Adapters, pruning, quantization, parametrizations and profilers show as a subclass, a hook, a ``forward`` of the
    instance or a weight that is computed from other tensors.
    """
    if type(module) is not nn.Linear or "forward" in module.__dict__ or has_hooks(module):
        return None
    weight = module.weight
    return None if hasattr(weight, "__tensor_flatten__") else Affine(weight, module.bias)


def has_hooks(module: nn.Module) -> bool:
    """Whether calling ``module`` calls hooks: its own, or hooks that are registered for all modules."""
    module_hooks = (
        module._forward_pre_hooks or module._forward_hooks or module._backward_pre_hooks or module._backward_hooks
    )
    global_hooks = hooks_of_all._global_forward_pre_hooks or hooks_of_all._global_forward_hooks
    global_hooks = global_hooks or hooks_of_all._global_backward_pre_hooks or hooks_of_all._global_backward_hooks
    return bool(module_hooks or global_hooks)

"""A CUDA device that computes nothing: tensors have a shape, a dtype and a device, but no data."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves


@contextmanager
def on_fake_device(model: nn.Module, dtype: torch.dtype) -> Iterator[Any]:
    """A copy of ``model`` with fake tensors, as ``model.to("cuda", dtype)`` would make it, and the mode to use it in.

    Tensors that are neither parameters nor buffers stay on the CPU.
    """

    def moved(tensor: Tensor) -> Tensor:
        fake = torch.empty(tensor.shape, dtype=dtype if tensor.is_floating_point() else tensor.dtype, device="cuda")
        return nn.Parameter(fake) if isinstance(tensor, nn.Parameter) else fake

    mode = FakeTensorMode(allow_non_fake_inputs=True)  # for the tensors that stay
    with mode:
        copies = {id(tensor): moved(tensor) for tensor in chain(model.parameters(), model.buffers())}
    fake_model = copy.deepcopy(model, copies)
    for module in fake_model.modules():  # the positions of fairseq 0.12.2 are in no buffer
        if isinstance(getattr(module, "weights", None), Tensor) and not module.weights.is_cuda:
            with mode:
                module.weights = moved(module.weights)
    # fairseq's positions read a shape as a tensor, whose data a fake one lacks.
    shapes = mock.patch("torch.onnx.operators.shape_as_tensor", lambda tensor: tensor.shape)
    # A mode sees the operators of its own thread only, and the backward pass would have another.
    with mode, shapes, torch.autograd.set_multithreading_enabled(False):
        yield fake_model


def tensors(tree: Any) -> list[Tensor]:
    """All tensors in nested containers."""
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]

"""Forward pass, criterion and backward pass of one batch as a function on fixed memory, recorded once."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from torch import Tensor, nn

from ..cuda_graph import Record
from .gradients import FlatGradients
from .known_padding import TokensOfKnownPadding


class RecordedStep:
    """A training step for all batches with the shapes of ``sample``, and with padding where it has some.

    Args:
        sample: a batch of fairseq's; the step has its own copy.
        model, criterion, optimizer: fairseq's, as its task's ``train_step`` gets them.
        gradients: where the gradients are added.
        pads: the padding token of each of the model's arguments that may have padding.
        has_padding: whether they do.
        record: how the step is recorded, such as :func:`..cuda_graph.record`.

    Raises:
        RuntimeError: the step asks the device for a number.
    """

    loss: Tensor
    log: dict[str, Any]

    def __init__(
        self,
        sample: Mapping[str, Any],
        *,
        model: nn.Module,
        criterion: nn.Module,
        optimizer: Any,
        gradients: FlatGradients,
        pads: Mapping[str, int],
        has_padding: Mapping[str, bool],
        record: Record,
    ) -> None:
        self.model, self.criterion, self.gradients = model, criterion, gradients
        self.buffers = {name: x.clone() for name, x in tensors_of(sample).items()}
        self.sample = {**sample, **with_buffers(sample, self.buffers, pads, has_padding)}
        device = self.buffers["target"].device
        self.autocast = partial(torch.autocast, device.type, enabled=isinstance(optimizer, AMPOptimizer))
        # fairseq's loss scale is a Python number or a tensor of torch's GradScaler; a graph reads a tensor.
        self.scaler, self.scale = getattr(optimizer, "scaler", None), torch.ones((), device=device)
        self.load(sample)
        self.used: list[int] = []
        self.launch = record(self.compute, partial(gradients.restore, gradients.copy()))
        # A graph keeps no reference to what it reads. fairseq's decoder replaces its future mask by a larger one.
        self.kept_alive = attributes_of(model)

    def compute(self) -> None:
        """The step. It leaves ``loss``, ``log`` and ``used``, the numbers of the parameters that have a gradient."""
        with self.autocast():
            loss, _, log = self.criterion(self.model, self.sample)
        scale = self.scale.to(loss.dtype)
        # Not loss.backward(): the nodes that write to p.grad would belong to the stream on which they were made.
        gradients = torch.autograd.grad(loss, self.gradients.parameters, scale, allow_unused=True)
        self.used = self.gradients.add(gradients)
        self.loss, self.log = loss.detach(), log

    def load(self, sample: Mapping[str, Any]) -> None:
        """Copy a batch, and the optimizer's loss scale, to where the step reads them."""
        for name, x in tensors_of(sample).items():
            self.buffers[name].copy_(x)
        if self.scaler is not None:
            self.scale.copy_(self.scaler.scale(torch.ones_like(self.scale)))

    def replay(self, sample: Mapping[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """The loss of a batch, and the criterion's report without its numbers of the host; adds to the gradients."""
        self.load(sample)
        self.gradients.attach(self.used)
        self.launch()
        # Trainers read a report after later steps, which may be replays of this one.
        return self.loss.clone(), {name: x.clone() for name, x in self.log.items() if torch.is_tensor(x)}


def tensors_of(sample: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors that a criterion reads, by name."""
    tensors = {name: x for name, x in sample["net_input"].items() if torch.is_tensor(x)}
    return {**tensors, "target": sample["target"]}


def with_buffers(
    sample: Mapping[str, Any], buffers: Mapping[str, Tensor], pads: Mapping[str, int], has_padding: Mapping[str, bool]
) -> dict[str, Any]:
    """The inputs of a model and the target in these ``buffers``, whose padding is known."""
    net_input = {**sample["net_input"], **{name: x for name, x in buffers.items() if name != "target"}}
    for name, known in has_padding.items():
        net_input[name] = TokensOfKnownPadding.of(net_input[name], pad=pads[name], has_padding=known)
    return {"net_input": net_input, "target": buffers["target"]}


def attributes_of(model: nn.Module) -> list[Tensor]:
    """All tensors that modules have as parameters, buffers or attributes."""
    values: Iterable[Any] = (
        x
        for module in model.modules()
        for some in (vars(module), module._parameters, module._buffers)
        for x in some.values()
    )
    return [x for x in values if torch.is_tensor(x)]

"""The training steps of a run, each computed eagerly or replayed."""

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from fairseq.logging import meters, metrics
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from ..cuda_graph import Record
from ..modules.dropout import Dropout
from .gradients import FlatGradients
from .known_padding import KEY as HAS_PADDING
from .recorded_step import RecordedStep, tensors_of
from .unsupported import check_optimizer, host_numbers

logger = logging.getLogger(__name__)

# Recorded steps that are kept. Batches of further shapes are computed eagerly.
MOST_RECORDED = 64
# Recorded steps, the first ones of a run, that are compared with eager ones.
COMPARED = 3
# The place of the counts in the line of an epoch, after the loss scale.
PRIORITY = 760
# Differences of the loss and of gradients, relative to their size, that kernels which add in any order may have.
CLOSE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}

Output = tuple[Tensor, Any, dict[str, Any]]


class RecordedTraining:
    """Computes fairseq's training steps: a batch whose shape has been seen before is one launch of a recorded step.

    Args:
        eager_step: the task's ``train_step``, with which everything else is computed.
        pads: the padding token of each of the model's arguments that may have padding.
        record: how a step is recorded, such as :func:`..cuda_graph.record`.
        most_recorded: steps that are kept.
    """

    def __init__(
        self,
        eager_step: Callable[..., Output],
        *,
        pads: Mapping[str, int],
        record: Record,
        most_recorded: int = MOST_RECORDED,
    ) -> None:
        self.eager_step, self.pads, self.record, self.most_recorded = eager_step, pads, record, most_recorded
        self.model: nn.Module | None = None
        self.gradients = FlatGradients([])
        self.steps: dict[Hashable, RecordedStep] = {}
        # With the first batch of each, which the comparison with eager steps needs.
        self.shapes: dict[Hashable, Any] = {}
        self.compared, self.failed = 0, False

    def use(self, model: nn.Module, optimizer: Any) -> None:
        """Record steps of this ``model`` from now on. If it reduces gradients over processes, they are reduced here."""
        check_optimizer(optimizer)
        self.model = model
        self.steps.clear()
        self.gradients = FlatGradients(p for p in model.parameters() if p.requires_grad)
        reducing: Any = model
        if hasattr(model, "all_reduce_grads"):  # fairseq's wrapper for --ddp-backend legacy_ddp
            processes, group = reducing.world_size, reducing.process_group
            reducing.all_reduce_grads = lambda: self.gradients.all_reduce(processes, group)

    def train_step(
        self,
        sample: Mapping[str, Any],
        model: nn.Module,
        criterion: nn.Module,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **more: Any,
    ) -> Output:
        """As ``FairseqTask.train_step``: loss, sample size and report; gradients are added to the model's gradients."""
        if model is not self.model:
            self.use(model, optimizer)
        step = None
        if not (self.failed or ignore_grad or more or has_output_hooks(model)):
            step = self.step_for(sample, model, criterion, optimizer, update_num)
        self.report(replayed=step is not None)
        if step is None:
            return self.eager_step(sample, model, criterion, optimizer, update_num, ignore_grad, **more)
        loss, log = step.replay(sample)
        if hasattr(optimizer, "_needs_sync"):  # its backward(), which a replay does not call, would note it
            optimizer._needs_sync = True
        log |= host_numbers(criterion, sample)
        return loss, log["sample_size"], log

    def step_for(
        self, sample: Mapping[str, Any], model: Any, criterion: nn.Module, optimizer: Any, update_num: int
    ) -> RecordedStep | None:
        """The recorded step for a batch, recorded now if it is time to; None: it is computed eagerly."""
        key = key_of(sample)
        if key is None:
            return None
        if key not in self.shapes:
            self.shapes[key] = sample if self.compared < COMPARED else None
            return None
        if key not in self.steps and len(self.steps) == self.most_recorded:
            return None
        if not model.training:
            model.train()
        model.set_num_updates(update_num)
        if key not in self.steps:
            try:
                self.steps[key] = self.recorded(self.shapes[key], sample, model, criterion, optimizer)
            except Exception as error:  # of capturing: torch has no common class for them
                self.failed = True
                self.steps.clear()
                problem = str(error).splitlines() or [type(error).__name__]
                logger.warning("--record-training: from now on every step is computed eagerly: %s", problem[0])
                return None
        return self.steps[key]

    def recorded(
        self,
        first: Mapping[str, Any],
        sample: Mapping[str, Any],
        model: nn.Module,
        criterion: nn.Module,
        optimizer: Any,
    ) -> RecordedStep:
        """Record a step for the shapes of two batches; the first steps, without dropout, are compared with eager ones.

        Raises:
            RuntimeError: the step cannot be recorded, or its loss or gradients differ from an eager step's.
        """

        def new(sample: Mapping[str, Any]) -> RecordedStep:
            return RecordedStep(
                sample,
                model=model,
                criterion=criterion,
                optimizer=optimizer,
                gradients=self.gradients,
                pads=self.pads,
                has_padding=sample[HAS_PADDING],
                record=self.record,
            )

        with same_random_numbers(sample["target"].device), same_buffers(model):
            if self.compared < COMPARED:
                with without_dropout(model):
                    # It is recorded with other numbers than it is replayed with: they must not be constants.
                    step = new(first)
                    self.compare(step, sample)
            return new(sample)

    def compare(self, step: RecordedStep, sample: Mapping[str, Any]) -> None:
        """Raises RuntimeError if the recorded ``step`` does not have the loss and gradients of an eager one."""
        gradients, device = self.gradients, sample["target"].device
        before = gradients.copy()
        with same_random_numbers(device), step.autocast():
            loss, _, _ = step.criterion(step.model, sample)
        expected = torch.autograd.grad(loss, gradients.parameters, step.scale.to(loss.dtype), allow_unused=True)
        with same_random_numbers(device):
            gradients.zero()
            step.load(sample)
            step.launch()
        pairs = [(step.loss, loss.detach())]
        pairs += [(view, x) for view, x in zip(gradients.views, expected, strict=True) if x is not None]
        norms = norms_of(x for _, x in pairs)
        # A gradient that is nearly 0 is compared with the others.
        errors = norms_of(actual - x for actual, x in pairs) / norms.maximum(norms.max() / 1000).clamp(min=1e-30)
        gradients.restore(before)
        if not norms.isfinite().all():  # an overflow, after which fairseq lowers the loss scale; see a later step
            return
        self.compared += 1
        allowed = CLOSE.get(gradients.parameters[0].dtype, CLOSE[torch.float32])
        if not errors.max() <= allowed:
            raise RuntimeError(f"a recorded step's loss or gradients differ from eager ones, by {errors.max():.1e}")

    def report(self, *, replayed: bool) -> None:
        """Count a step in the line that fairseq logs at the end of an epoch."""
        train = metrics.get_meters("train")
        if train is None:  # a trainer outside of fairseq-train
            return
        if "replayed" not in train:
            for name in ("graphs", "shapes", "replayed", "eager"):
                train.add_meter(name, meters.SumMeter(), PRIORITY)
        train["replayed"].update(int(replayed))
        train["eager"].update(int(not replayed))
        for name, value in {"graphs": len(self.steps), "shapes": len(self.shapes)}.items():
            train[name].reset()
            train[name].update(value)


def key_of(sample: Mapping[str, Any]) -> Hashable | None:
    """The properties that batches with one recorded step share; None: none can be recorded for this one."""
    if HAS_PADDING not in sample or not torch.is_tensor(sample.get("target")):
        return None
    others = {name: x for name, x in sample["net_input"].items() if not torch.is_tensor(x)}
    if any(not isinstance(x, Hashable) for x in others.values()):
        return None
    shapes = tuple((name, x.shape, x.dtype) for name, x in tensors_of(sample).items())
    return shapes, tuple(others.items()), tuple(sample[HAS_PADDING].items())


def has_output_hooks(model: nn.Module) -> bool:
    """Whether something looks at the outputs of modules, such as fairseq's ``NanDetector``: a replay shows none."""
    while "module" in model._modules:  # a wrapper for several processes
        model = model.get_submodule("module")
    return bool(model._forward_hooks)


@contextmanager
def same_random_numbers(device: torch.device) -> Iterator[None]:
    """Leave the generators of random numbers as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


@contextmanager
def same_buffers(model: nn.Module) -> Iterator[None]:
    """Leave the buffers of ``model`` as they were: routing attention counts each batch in some, and once is enough."""
    before = {name: x.clone() for name, x in model.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, x in model.named_buffers():
                if name in before and x.shape == before[name].shape:
                    x.copy_(before[name])


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Set the probability of every dropout of the ``model`` to 0."""
    modules: list[Any] = [x for x in model.modules() if isinstance(x, nn.Dropout | FairseqDropout | Dropout)]
    before = [x.p for x in modules]
    try:
        for module in modules:
            module.p = 0.0
        yield
    finally:
        for module, p in zip(modules, before, strict=True):
            module.p = p


def norms_of(tensors: Iterable[Tensor]) -> Tensor:
    """The norm of each, in fp32."""
    return torch.stack([x.float().norm() for x in tensors])

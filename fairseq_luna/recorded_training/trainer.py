"""``--record-training``: recorded steps in fairseq's ``Trainer``, for models of this package and of fairseq."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from fairseq.models.transformer import TransformerModel
from fairseq.trainer import Trainer

from .. import cuda_graph
from ..cuda_graph import Record
from ..monkeypatch import wrap_method
from . import known_padding
from .recorded_training import RecordedTraining
from .unsupported import check_supported

logger = logging.getLogger(__name__)


def install_recorded_training() -> None:
    """Wrap fairseq's ``Trainer`` and the flags of its transformer; called once, when the models are registered."""
    from ..models.shared.config import RECORD_TRAINING_HELP  # not above: importing the models calls this function

    @wrap_method(Trainer, "__init__")
    def start(original: Callable[..., None], self: Any, cfg: Any, task: Any, *more: Any, **options: Any) -> None:
        original(self, cfg, task, *more, **options)
        self.recorded_training = None
        if getattr(self.cfg.model, "record_training", False):
            check_supported(self.cfg, task, self.criterion)
            record_steps_of(self)

    @wrap_method(Trainer, "_prepare_sample")
    def prepare(original: Callable[..., Any], self: Any, sample: Any, is_dummy: bool = False) -> Any:
        recorded = getattr(self, "recorded_training", None)
        if recorded is None or is_dummy or not isinstance(sample, dict) or "net_input" not in sample:
            return original(self, sample, is_dummy)
        padding_by_name = known_padding.padding_by_name(sample["net_input"], recorded.pads)
        return original(self, {**sample, known_padding.KEY: padding_by_name}, is_dummy)

    @wrap_method(Trainer, "_reduce_and_log_stats")
    def report(original: Callable[..., Any], self: Any, logs: Any, sample_size: Any, grad_norm: Any = None) -> Any:
        if getattr(self, "recorded_training", None) is not None and logs is not None:
            *logs, last = on_the_host([*logs, {"grad_norm": grad_norm}])
            grad_norm = last["grad_norm"]
        return original(self, logs, sample_size, grad_norm)

    @wrap_method(TransformerModel, "add_args")
    def add_args(original: Callable[[Any], None], parser: Any) -> None:
        original(parser)
        parser.add_argument("--record-training", action="store_true", help=RECORD_TRAINING_HELP)


def record_steps_of(trainer: Any) -> None:
    """Make ``trainer`` record its steps if its device has CUDA graphs."""
    record = training_recorder(trainer.device)
    if record is None:
        logger.info("--record-training: CUDA graphs need a GPU; every step is computed eagerly")
        return
    # torch's DDP reduces gradients within the backward pass. With this backend they are reduced after it.
    trainer.cfg.distributed_training.ddp_backend = "legacy_ddp"
    task = trainer.task
    dictionaries = {"src_tokens": task.source_dictionary, "prev_output_tokens": task.target_dictionary}
    pads = {name: dictionary.pad() for name, dictionary in dictionaries.items() if dictionary is not None}
    eager_step = partial(type(task).train_step, task)
    trainer.recorded_training = RecordedTraining(eager_step, pads=pads, record=record)
    task.train_step = trainer.recorded_training.train_step


def on_the_host(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same reports with all numbers on the host, by one copy.

    fairseq's statistics launch some fifty kernels for them, and wait for the device anyway.
    """
    numbers = [x for report in reports for x in report.values() if torch.is_tensor(x) and x.dim() == 0]
    if len({(x.device, x.dtype) for x in numbers}) != 1:
        return reports
    read = iter(torch.stack(numbers).cpu().unbind())
    return [
        {name: next(read) if torch.is_tensor(x) and x.dim() == 0 else x for name, x in report.items()}
        for report in reports
    ]


def training_recorder(device: torch.device) -> Record | None:
    """The function that records steps on ``device``, or None if steps are computed eagerly."""
    if device.type != "cuda":
        return None
    return partial(cuda_graph.record, pool=torch.cuda.graph_pool_handle())

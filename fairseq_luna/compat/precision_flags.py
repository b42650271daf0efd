"""The flags of half precision: ``--bf16``, ``--amp`` and ``--fp16``."""

import warnings
from argparse import ArgumentParser
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import FP16Optimizer
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method
from fairseq_luna.usage_error import UsageError


class BF16SetsTPU(Patch):
    """``--bf16`` on the command line also sets ``--tpu``, which fails on every machine without torch_xla.

    fairseq 0.12.2 and fairseq-fixed 0.12.3.1. With this patch --bf16 trains on GPUs or CPUs, in one process or several.
    """

    name = "bf16"
    summary = "--bf16 set --tpu, which needs torch_xla; --tpu stays unset"

    def is_needed(self) -> bool:
        """Whether --bf16 sets --tpu and torch_xla is not installed."""
        parser = ArgumentParser()
        for flag in ("--bf16", "--fp16", "--batch-size"):
            parser.add_argument(flag, nargs="?", const=True)
        parsed = options.parse_args_and_arch(parser, ["--bf16"])
        return bool(parsed.tpu) and find_spec("torch_xla") is None

    def apply(self) -> None:
        @wrap_method(distributed_utils, "call_main")
        def call_main(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
            if cfg.common.bf16:
                cfg.common.tpu = False
                cfg.distributed_training.tpu = False  # a copy, with which several processes would count as a TPU's
            return original(cfg, *args, **kwargs)


class AMPOnCPU(Patch):
    """``--amp`` on a CPU trains in fp32, and only warns that CUDA is not available.

    fairseq 0.12.2 and fairseq-fixed 0.12.3.1. With this patch the forward pass is under autocast to bf16, whose range
    needs no scale of the loss; parameters, gradients and the optimizer stay in fp32, and validation is in fp32.
    """

    name = "cpu-amp"
    summary = "--amp on a CPU trained in fp32; it trains with bf16 products"

    def is_needed(self) -> bool:
        """Whether the loss of a model on the CPU is computed without autocast."""
        seen = []

        def criterion(model: nn.Linear, sample: Any) -> tuple[torch.Tensor, int, dict[str, Any]]:
            seen.append(torch.is_autocast_enabled("cpu"))
            return model.weight.sum(), 1, {}

        optimizer = AMPOptimizer.__new__(AMPOptimizer)
        optimizer._grad_scaler = SimpleNamespace(scale=lambda loss: loss)
        model = nn.utils.skip_init(_Model, 1, 1)  # draws no random numbers
        # CUDA is hidden, so that it is not initialized; fairseq's autocast warns of that.
        with patch.object(torch.cuda, "is_available", lambda: False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FairseqTask.train_step(SimpleNamespace(), {}, model, criterion, optimizer, 0)
        return seen == [False]

    def apply(self) -> None:
        @wrap_method(FairseqTask, "train_step")
        def train_step(
            original: Any,
            self: Any,
            sample: Any,
            model: nn.Module,
            criterion: Any,
            optimizer: Any,
            *more: Any,
            **options: Any,
        ) -> Any:
            if isinstance(optimizer, AMPOptimizer) and next(model.parameters()).device.type == "cpu":
                criterion = torch.autocast("cpu", torch.bfloat16)(criterion)
            return original(self, sample, model, criterion, optimizer, *more, **options)


class _Model(nn.Linear):
    def set_num_updates(self, num_updates: int) -> None:
        """fairseq's models have this method."""


class UnclearFP16Errors(Patch):
    """``--fp16`` without a CUDA device, or with ``--bf16`` or ``--amp``, ends in a traceback about other things.

    fairseq 0.12.2 and fairseq-fixed 0.12.3.1 ask for the number of the CUDA device, mention --tpu, or fail in an
    assertion. With this patch each is refused in one line.
    """

    name = "half-precision"
    summary = "--fp16 without CUDA, or with --bf16 or --amp, ended in a traceback; it is refused in one line"

    def is_needed(self) -> bool:
        """Whether parameters on a CPU are copied to one vector by way of CUDA."""

        def current_device() -> NoReturn:
            raise _AsksForDevice

        with (
            patch.object(torch.cuda, "current_device", current_device),
            patch.object(torch.cuda, "is_available", lambda: False),
        ):
            try:
                FP16Optimizer.build_fp32_params(SimpleNamespace(), [torch.zeros(1)])
            except _AsksForDevice:
                return True
            except UsageError:
                return False
        return False

    def apply(self) -> None:
        @wrap_method(FP16Optimizer, "build_fp32_params")
        def build_fp32_params(original: Any, args: Any, params: list[Tensor], flatten: bool = True) -> Any:
            if flatten and not torch.cuda.is_available():
                others = "--bf16" if getattr(args, "_name", None) == "apollo" else "--bf16 or --amp"
                raise UsageError(f"--fp16: it needs a CUDA device, and there is none: use {others}")
            return original(args, params, flatten=flatten)

        @wrap_method(options, "parse_args_and_arch")
        def parse_args_and_arch(original: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except ValueError as error:
                if "Cannot combine --fp16" not in str(error):
                    raise
                raise _two_precisions("--bf16") from error

        @wrap_method(distributed_utils, "call_main")
        def call_main(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
            if cfg.common.fp16:  # as --memory-efficient-fp16 sets it too
                for flag in ("bf16", "amp"):
                    if getattr(cfg.common, flag):
                        raise _two_precisions(f"--{flag}")
            return original(cfg, *args, **kwargs)


class _AsksForDevice(Exception):
    """Raised where fairseq asks for the CUDA device."""


def _two_precisions(other: str) -> UsageError:
    return UsageError(f"--fp16 and {other}: these are two kinds of half precision; give one of them")

"""``--fp16`` without a CUDA device, or with ``--bf16`` or ``--amp``, ends in a traceback that names other things.

fairseq 0.12.2 and fairseq-fixed 0.12.3.1 ask for the number of the CUDA device, speak of --tpu, or fail in an
assertion. With this patch each is refused in one line.
"""

from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import FP16Optimizer
from torch import Tensor

from fairseq_luna.replacing import replaces
from fairseq_luna.usage_error import UsageError

SUMMARY = "--fp16 without CUDA, or with --bf16 or --amp, ended in a traceback; it is refused in one line"


class _Asked(Exception):
    """Raised where fairseq asks for the CUDA device."""


def is_needed() -> bool:
    """Whether parameters on a CPU are copied to one vector by way of CUDA."""

    def current_device() -> NoReturn:
        raise _Asked

    with (
        patch.object(torch.cuda, "current_device", current_device),
        patch.object(torch.cuda, "is_available", lambda: False),
    ):
        try:
            FP16Optimizer.build_fp32_params(SimpleNamespace(), [torch.zeros(1)])
        except _Asked:
            return True
        except UsageError:
            return False
    return False


def apply() -> None:
    @replaces(FP16Optimizer, "build_fp32_params")
    def build_fp32_params(original: Any, args: Any, params: list[Tensor], flatten: bool = True) -> Any:
        if flatten and not torch.cuda.is_available():
            others = "--bf16" if getattr(args, "_name", None) == "apollo" else "--bf16 or --amp"
            raise UsageError(f"--fp16: it needs a CUDA device, and there is none: use {others}")
        return original(args, params, flatten=flatten)

    @replaces(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except ValueError as error:
            if "Cannot combine --fp16" not in str(error):
                raise
            raise _both("--bf16") from error

    @replaces(distributed_utils, "call_main")
    def call_main(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        if cfg.common.fp16:  # as --memory-efficient-fp16 sets it too
            for flag in ("bf16", "amp"):
                if getattr(cfg.common, flag):
                    raise _both(f"--{flag}")
        return original(cfg, *args, **kwargs)


def _both(other: str) -> UsageError:
    return UsageError(f"--fp16 and {other}: these are two kinds of half precision; give one of them")

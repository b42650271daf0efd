"""``--amp`` on a CPU trains in fp32, and says only that CUDA is not there.

fairseq 0.12.2 and fairseq-fixed 0.12.3.1. With this patch the forward pass is under autocast to bf16, whose range needs
no scale of the loss; parameters, gradients and the optimizer stay in fp32, and validation is in fp32.
"""

import warnings
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks import FairseqTask
from torch import nn

from fairseq_luna.replacing import replaces

SUMMARY = "--amp on a CPU trained in fp32; it trains with bf16 products"


class _Model(nn.Linear):
    def set_num_updates(self, num_updates: int) -> None:
        """fairseq's models have this method."""


def is_needed() -> bool:
    """Whether the loss of a model on the CPU is computed without autocast."""
    seen = []

    def criterion(model: nn.Linear, sample: Any) -> tuple[torch.Tensor, int, dict[str, Any]]:
        seen.append(torch.is_autocast_enabled("cpu"))
        return model.weight.sum(), 1, {}

    optimizer = AMPOptimizer.__new__(AMPOptimizer)
    optimizer._grad_scaler = SimpleNamespace(scale=lambda loss: loss)
    model = nn.utils.skip_init(_Model, 1, 1)  # draws no random numbers
    # CUDA is hidden, so that it is not initialised; fairseq's autocast warns of that.
    with patch.object(torch.cuda, "is_available", lambda: False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FairseqTask.train_step(SimpleNamespace(), {}, model, criterion, optimizer, 0)
    return seen == [False]


def apply() -> None:
    @replaces(FairseqTask, "train_step")
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

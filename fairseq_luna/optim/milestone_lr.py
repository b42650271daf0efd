"""``--lr-scheduler milestone``: linear warm-up, then a constant learning rate that is reduced at given updates."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import List  # noqa: UP035 (fairseq's parser does not support list)

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II, DictConfig

from fairseq_luna.usage_error import UsageError


def milestone_lr(
    num_updates: int, *, peak: float, init: float, warmup: int, milestones: Sequence[int], decay: float
) -> float:
    """Learning rate as a function of the number of updates alone, so that a resumed run has the same.

    Args:
        num_updates: updates made so far.
        peak: learning rate at the end of the warm-up.
        init: learning rate before the first update, if there is a warm-up.
        warmup: length of the linear warm-up in updates; 0 for none. A milestone within it takes effect at its end.
        milestones: ascending numbers of updates.
        decay: factor by which each milestone multiplies the learning rate.
    """
    if num_updates <= warmup and warmup > 0:
        return init + (peak - init) * num_updates / warmup
    return peak * decay ** bisect_right(milestones, num_updates)


@dataclass
class MilestoneLRScheduleConfig(FairseqDataclass):
    milestones: List[int] = field(  # noqa: UP006 (as above)
        default_factory=list,
        metadata={"help": "updates at which the learning rate is reduced, such as 300000,450000; default: none"},
    )
    lr_decay_rate: float = field(
        default=0.1, metadata={"help": "factor by which each milestone multiplies the learning rate, in (0, 1]"}
    )
    warmup_updates: int = field(default=0, metadata={"help": "length of the linear warm-up in updates"})
    warmup_init_lr: float = field(default=1e-5, metadata={"help": "learning rate at the start of the warm-up"})
    lr: List[float] = II("optimization.lr")  # noqa: UP006, RUF009 (a string)


@register_lr_scheduler("milestone", dataclass=MilestoneLRScheduleConfig)
class MilestoneLRSchedule(FairseqLRScheduler):
    """Sets the optimizer's learning rate to :func:`milestone_lr` after each update.

    Raises:
        UsageError: if an option is out of its range.
    """

    def __init__(self, cfg: DictConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        _check_milestones(cfg)
        self.peak = cfg.lr[0] if isinstance(cfg.lr, Sequence) else cfg.lr
        self.milestones = list(cfg.milestones)
        self.step_update(0)

    def step(self, epoch: int, val_loss: float | None = None) -> None:
        """Do nothing at the end of an epoch: the learning rate depends on the number of updates alone.

        The inherited method stores the best loss, which nothing reads and which differs after a resume, because an
        epoch's last checkpoint is written before this call.
        """

    def step_update(self, num_updates: int) -> float:
        lr = milestone_lr(
            num_updates,
            peak=self.peak,
            init=self.cfg.warmup_init_lr,
            warmup=self.cfg.warmup_updates,
            milestones=self.milestones,
            decay=self.cfg.lr_decay_rate,
        )
        self.optimizer.set_lr(lr)
        return lr


def _check_milestones(cfg: DictConfig) -> None:
    steps = [0, *cfg.milestones]
    if isinstance(cfg.lr, Sequence) and len(cfg.lr) != 1:
        raise UsageError(f"--lr {list(cfg.lr)} must be one learning rate with --lr-scheduler milestone, such as 0.1")
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise UsageError(f"--milestones {steps[1:]} must be above 0 and ascending, such as 300000,450000")
    if not 0 < cfg.lr_decay_rate <= 1:
        raise UsageError(f"--lr-decay-rate {cfg.lr_decay_rate} must be above 0 and at most 1, such as 0.1")
    if cfg.warmup_updates < 0:
        raise UsageError(f"--warmup-updates {cfg.warmup_updates} must be at least 0, such as 1000")
    if steps[1:] and cfg.warmup_updates > steps[1]:
        raise UsageError(
            f"--warmup-updates {cfg.warmup_updates} must be at most the first of --milestones {steps[1:]}, where"
            " the learning rate would be cut before it is reached, such as a tenth of it"
        )
    if not 0 <= cfg.warmup_init_lr < math.inf:
        raise UsageError(f"--warmup-init-lr {cfg.warmup_init_lr} must be a finite number of at least 0, such as 1e-5")

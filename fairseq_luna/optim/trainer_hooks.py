"""Where Apollo needs more of fairseq than an optimizer is given: clipping, and the config before the model is built."""

import functools
from typing import Any

from fairseq import tasks
from fairseq.trainer import Trainer
from omegaconf import DictConfig
from torch import Tensor

from fairseq_luna.optim.fairseq_apollo import ClipMode
from fairseq_luna.optim.fairseq_options import is_used, refuse_unsupported


def install() -> None:
    """Wrap fairseq's ``Trainer.clip_grad_norm`` and ``tasks.setup_task``; call once per process."""
    _leave_clipping_each_to_apollo()
    _refuse_before_the_model_is_built()


def _leave_clipping_each_to_apollo() -> None:
    """With ``--apollo-clip-mode each``, let the trainer measure the total norm, but not clip by it."""
    original_clip = Trainer.clip_grad_norm

    @functools.wraps(original_clip)
    def clip_grad_norm(self: Trainer, clip_norm: float) -> Tensor:
        each = getattr(self.cfg.optimizer, "apollo_clip_mode", None) == ClipMode.each
        return original_clip(self, 0.0 if each else clip_norm)

    Trainer.clip_grad_norm = clip_grad_norm


def _refuse_before_the_model_is_built() -> None:
    """Refuse unsupported options before fairseq builds a large model or asks for another library because of them."""
    original_setup = tasks.setup_task

    @functools.wraps(original_setup)
    def setup_task(cfg: Any, **kwargs: Any) -> Any:
        # The config in a checkpoint has been checked by the training that wrote it.
        if isinstance(cfg, DictConfig) and not kwargs.get("from_checkpoint"):
            root = cfg._get_root()
            if is_used(root):
                refuse_unsupported(root)
        return original_setup(cfg, **kwargs)

    tasks.setup_task = setup_task

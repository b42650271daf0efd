"""Where Apollo needs more of fairseq than an optimizer is given: clipping."""

import functools

from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_luna.optim.fairseq_apollo import ClipMode


def install() -> None:
    """Wrap fairseq's ``Trainer.clip_grad_norm``; call once per process.

    With ``--apollo-clip-mode each`` the trainer measures the total norm, but does not clip by it.
    """
    original_clip = Trainer.clip_grad_norm

    @functools.wraps(original_clip)
    def clip_grad_norm(self: Trainer, clip_norm: float) -> Tensor:
        each = getattr(self.cfg.optimizer, "apollo_clip_mode", None) == ClipMode.each
        return original_clip(self, 0.0 if each else clip_norm)

    Trainer.clip_grad_norm = clip_grad_norm

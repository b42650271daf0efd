"""Where Apollo needs more of fairseq than an optimizer is given: clipping."""

from collections.abc import Callable

from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_luna.optim.fairseq_apollo import ClipMode
from fairseq_luna.replacing import replaces


def install() -> None:
    """Wrap fairseq's ``Trainer.clip_grad_norm``; call once per process.

    With ``--apollo-clip-mode each`` the trainer measures the total norm, but does not clip by it.
    """

    @replaces(Trainer, "clip_grad_norm")
    def clip_grad_norm(original: Callable[..., Tensor], self: Trainer, clip_norm: float) -> Tensor:
        each = getattr(self.cfg.optimizer, "apollo_clip_mode", None) == ClipMode.each
        return original(self, 0.0 if each else clip_norm)

"""Apollo as fairseq's ``--optimizer apollo``: the wrapper, the options of fairseq that it refuses, and clipping."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, List, Optional  # noqa: UP035 (fairseq's parser does not support list and | None)

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import OptimizationConfig
from fairseq.dataclass.constants import StrEnum
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.trainer import Trainer
from omegaconf import II, DictConfig, OmegaConf
from torch import Tensor

from fairseq_luna.monkeypatch import wrap_method
from fairseq_luna.optim.apollo import Apollo, check_options
from fairseq_luna.optim.apollo_update import spread
from fairseq_luna.usage_error import UsageError

logger = logging.getLogger(__name__)

SHORTEST_WARMUP = 100


class Rebound(StrEnum):
    constant = "constant"
    belief = "belief"


class ClipMode(StrEnum):
    total = "total"
    each = "each"


class WeightDecayType(StrEnum):
    L2 = "L2"
    decoupled = "decoupled"
    stable = "stable"


@dataclass
class FairseqApolloConfig(FairseqDataclass):
    apollo_beta: float = field(default=0.9, metadata={"help": "decay of the average gradient, in [0, 1)"})
    apollo_eps: float = field(default=1e-4, metadata={"help": "keeps the norm of the last direction above zero"})
    apollo_rebound: Rebound = field(
        default=Rebound("constant"),
        metadata={
            "help": "lower bound of the curvature: a constant, or the gradient's largest deviation from its mean"
        },
    )
    apollo_clip_mode: ClipMode = field(
        default=ClipMode("total"),
        metadata={"help": "clip the norm of all gradients together to --clip-norm, or of each parameter's gradient"},
    )
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay"})
    weight_decay_type: Optional[WeightDecayType] = field(  # noqa: UP045 (as above)
        default=None,
        metadata={
            "help": "add the decay to the gradient (L2), to the direction (decoupled), or to the direction in "
            "units of mean curvature (stable); default: L2 with the constant rebound, decoupled with belief"
        },
    )
    clip_norm: float = II("optimization.clip_norm")
    lr: List[float] = II("optimization.lr")  # noqa: UP006, RUF009 (a string)


class _ApolloInFairseq(Apollo):
    # fairseq's memory-efficient wrapper would replace the loaded state by the checkpoint's tensors on the CPU, to undo
    # a cast that Apollo.load_state_dict does not make.
    disable_mem_eff_fp16_loading_hack = True


@register_optimizer("apollo", dataclass=FairseqApolloConfig)
class FairseqApollo(FairseqOptimizer):
    """fairseq's wrapper of :class:`Apollo`, for fp32, ``--fp16``, ``--bf16`` and their memory-efficient variants.

    Raises:
        UsageError: if an option is out of its range, or with an option of fairseq that Apollo does not support
            (see :func:`refuse_unsupported`).
    """

    def __init__(self, cfg: DictConfig, params: Iterable[Any]) -> None:
        super().__init__(cfg)
        if isinstance(cfg, DictConfig):
            refuse_unsupported(cfg._get_root())
            _warn_of_short_warmup(cfg._get_root())
            _warn_of_default_learning_rate(cfg)
        self.clips_each = cfg.apollo_clip_mode == ClipMode.each
        if self.clips_each and not cfg.clip_norm > 0:
            raise UsageError(f"--apollo-clip-mode each with --clip-norm {cfg.clip_norm}: give a norm, such as 0.1")
        if self.clips_each and isinstance(cfg, DictConfig) and is_composite(cfg._get_root()):
            raise UsageError(
                "--apollo-clip-mode each: fairseq's composite optimizer clips the total norm; leave it out"
            )
        try:
            self._optimizer = _ApolloInFairseq(params, **self.optimizer_config)
        except ValueError as error:
            raise UsageError(f"--optimizer apollo: {error}") from error

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Keyword arguments of the torch optimizer."""
        cfg = self.cfg
        return {
            "lr": cfg.lr[0] if isinstance(cfg.lr, Sequence) else cfg.lr,
            "beta": cfg.apollo_beta,
            "eps": cfg.apollo_eps,
            "rebound": str(cfg.apollo_rebound),
            "weight_decay": cfg.weight_decay,
            "weight_decay_type": None if cfg.weight_decay_type is None else str(cfg.weight_decay_type),
        }

    @property
    def supports_memory_efficient_fp16(self) -> bool:
        return True

    @property
    def supports_flat_params(self) -> bool:
        return False

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        options = self._optimizer.defaults
        unknown = ", ".join(name for name in optimizer_overrides or {} if name not in options)
        if unknown:
            raise UsageError(f"--optimizer-overrides {unknown}: Apollo has {', '.join(options)}")
        try:
            super().load_state_dict(state_dict, optimizer_overrides)
            for group in self._optimizer.param_groups:
                check_options(group)
        except ValueError as error:
            raise UsageError(f"--optimizer apollo: {error}") from error

    def step(
        self,
        closure: Callable[[], float] | None = None,
        scale: float = 1.0,
        groups: Collection[str] | None = None,
    ) -> None:
        """Clip each parameter's gradient, with ``--apollo-clip-mode each``, and update.

        Not in ``clip_grad_norm``, because fairseq's half-precision wrappers divide the gradients by the loss scale and
        the number of tokens only after that. A ``closure`` is called first, and its gradients are used.
        """
        if closure is not None:
            with torch.enable_grad():
                closure()
        if scale != 1.0:
            self.multiply_grads(1.0 / scale)
        if self.clips_each:
            clip_each([p.grad for p in self.params if p.grad is not None], self.cfg.clip_norm)
        super().step(groups=groups)


def clip_each(grads: list[Tensor], max_norm: float) -> None:
    """Scale each dense gradient in place to a 2-norm of at most ``max_norm``; norms are computed in fp32."""
    for dtype in {grad.dtype for grad in grads}:
        same = [grad for grad in grads if grad.dtype == dtype]
        norms = torch._foreach_norm(same, 2, dtype=torch.promote_types(dtype, torch.float32))
        factors = (max_norm / (torch.stack(norms) + 1e-6)).clamp_(max=1)
        torch._foreach_mul_(same, spread(factors.to(dtype), same))


def _warn_of_short_warmup(root: DictConfig) -> None:
    schedule = OmegaConf.select(root, "lr_scheduler")
    warmup = getattr(schedule, "warmup_updates", None)
    if warmup is not None and warmup < SHORTEST_WARMUP:
        logger.warning(
            "--warmup-updates %s is too few for Apollo, which tends to diverge below %s: use 1000 or so",
            warmup,
            SHORTEST_WARMUP,
        )


def _warn_of_default_learning_rate(cfg: DictConfig) -> None:
    """Warn if --lr is fairseq's default for all optimizers; whether the user gave it is unknown."""
    if list(cfg.lr) == OptimizationConfig().lr:
        logger.warning(
            "--lr %s is fairseq's default and high for Apollo: give --lr 0.1, the authors' learning rate", cfg.lr[0]
        )


# {place in fairseq's config: (refused value, reason)}
REFUSED = {
    "distributed_training.ddp_backend": (
        "fully_sharded",
        "--ddp-backend fully_sharded splits tensors, and Apollo's norms need them whole: use legacy_ddp or "
        "pytorch_ddp (with --zero-sharding os to save memory: its workers hold whole tensors)",
    ),
    "distributed_training.use_sharded_state": (
        True,
        "--use-sharded-state, a part of --ddp-backend fully_sharded, which splits tensors, and Apollo's norms need "
        "them whole: use --zero-sharding os alone, whose workers hold whole tensors",
    ),
    "common.amp": (
        True,
        "--amp: fairseq divides the gradients by the loss scale twice, which changes Adam little but Apollo "
        "a lot: use --bf16, or --fp16 --fp16-no-flatten-grads",
    ),
}
# With one of these options --fp16 leaves each gradient a tensor.
UNFLATTENED = ("fp16_no_flatten_grads", "bf16", "memory_efficient_fp16", "memory_efficient_bf16")


def refuse_unsupported(root: DictConfig) -> None:
    """Raise UsageError if fairseq's config has an option under which Apollo would compute something else."""
    for place, (value, reason) in REFUSED.items():
        if OmegaConf.select(root, place) == value:
            raise UsageError(f"--optimizer apollo does not go with {reason}")
    flattened = not any(OmegaConf.select(root, f"common.{flag}") for flag in UNFLATTENED)
    if OmegaConf.select(root, "common.fp16") and flattened:
        raise UsageError(
            "--optimizer apollo does not go with --fp16 alone, which makes one vector of all gradients, and Apollo's "
            "norms need each tensor: use --bf16, or add --fp16-no-flatten-grads"
        )


def is_composite(root: DictConfig) -> bool:
    """True if fairseq's config chooses the composite optimizer, which has one optimizer per parameter group."""
    return getattr(OmegaConf.select(root, "optimizer"), "_name", None) == "composite"


def wrap_gradient_clipping() -> None:
    """Wrap fairseq's ``Trainer.clip_grad_norm``; call once per process.

    With ``--apollo-clip-mode each`` the trainer measures the total norm, but does not clip by it: Apollo clips in its
    step.
    """

    @wrap_method(Trainer, "clip_grad_norm")
    def clip_grad_norm(original: Callable[..., Tensor], self: Trainer, clip_norm: float) -> Tensor:
        each = getattr(self.cfg.optimizer, "apollo_clip_mode", None) == ClipMode.each
        return original(self, 0.0 if each else clip_norm)

"""Numbers and files that fairseq takes without a look, and then trains to nothing or begins anew without a word.

Only where a model or the optimizer is this package's: a run of fairseq's own goes as it goes without the plugin.
"""

import functools
import math
from argparse import Namespace
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from fairseq.file_io import PathManager
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_luna.compat.patch import Patch
from fairseq_luna.usage_error import UsageError

Range = tuple[Callable[[Any], bool], str]

_ONE_OR_MORE: Range = (lambda x: x >= 1, "must be 1 or more")
# fairseq's own "no limit" is -1.
_LIMIT: Range = (lambda x: x >= 1 or x == -1, "must be 1 or more")
_NOT_NEGATIVE: Range = (lambda x: 0 <= x < math.inf, "must be at least 0")
_MAY_BE_INFINITE: Range = (lambda x: x >= 0, "must be at least 0")
_RATE: Range = (_NOT_NEGATIVE[0], "must be above 0")  # one of several may be 0: see check_rates
_FINITE: Range = (math.isfinite, "must be a finite number")
_ABOVE_MINUS_INFINITY: Range = (lambda x: x > -math.inf, "must be a number")
_NOT_ZERO: Range = (lambda x: x != 0, "must be 1 or more")
_SHARE: Range = (lambda x: 0 <= x <= 1, "must be at least 0 and at most 1")

# By their place in fairseq's config; the last part is the flag. Values that are not there, or None, are not looked at.
TRAINING: dict[str, Range] = {
    "optimization.lr": _RATE,
    "optimization.update_freq": _ONE_OR_MORE,
    "optimization.clip_norm": _MAY_BE_INFINITE,
    "dataset.max_tokens": _ONE_OR_MORE,
    "dataset.batch_size": _LIMIT,
    "dataset.validate_interval": _NOT_ZERO,
    "criterion.label_smoothing": _SHARE,
}
GENERATION: dict[str, Range] = {
    "beam": _ONE_OR_MORE,
    "nbest": _ONE_OR_MORE,
    "max_len_a": _NOT_NEGATIVE,
    "max_len_b": _NOT_NEGATIVE,
    "min_len": _NOT_NEGATIVE,
    "lenpen": _FINITE,
    "unkpen": _ABOVE_MINUS_INFINITY,  # inf: no unknown word at all
    "prefix_size": _NOT_NEGATIVE,
}


def is_needed() -> bool:
    """Always: no version looks at these, and to try one would take a model and data."""
    return True


def check(cfg: Any, ranges: dict[str, Range]) -> None:
    """Refuse by its flag what is out of its range: UsageError."""
    for place, (holds, mend) in ranges.items():
        found = OmegaConf.select(cfg, place) if OmegaConf.is_config(cfg) else getattr(cfg, place, None)
        for value in found if isinstance(found, Sequence) else [found]:
            if isinstance(value, Real) and not holds(value):
                raise UsageError(f"{_flag(place)} {value}: {mend}")


def check_rates(lr: Sequence[float]) -> None:
    """Refuse rates that are all 0: UsageError. One of several may be: an epoch in which nothing is learned."""
    if not any(lr):
        raise UsageError(f"--lr {lr[0] if len(lr) == 1 else lr}: must be above 0")


def check_loss(cfg: Any) -> None:
    """Refuse losses that stop in their first update: two with adaptive softmax, one without: UsageError."""
    cutoff, loss = getattr(cfg.model, "adaptive_softmax_cutoff", None), getattr(cfg.criterion, "_name", None)
    if cutoff and loss in ("cross_entropy", "label_smoothed_cross_entropy"):
        raise UsageError(f"--adaptive-softmax-cutoff {cutoff}: needs --criterion adaptive_loss, not {loss}")
    if loss == "adaptive_loss" and not cutoff:
        raise UsageError("--criterion adaptive_loss: needs --adaptive-softmax-cutoff, such as 4000,20000")


def check_words(model: Any) -> None:
    """Refuse a size of the decoder's outputs that shared embeddings cannot take: UsageError."""
    decoder: Any = getattr(model, "decoder", None)
    if getattr(decoder, "share_input_output_embed", False) and getattr(decoder, "adaptive_softmax", None) is None:
        size, words = getattr(decoder, "output_embed_dim", None), decoder.embed_tokens.embedding_dim
        if size not in (None, words):
            raise UsageError(
                f"--decoder-output-dim {size}: words in and out share their embeddings, of size {words}; leave it out"
            )


def check_restored(cfg: Any, filename: str) -> None:
    """Refuse to begin anew where a checkpoint was named that is not there: UsageError.

    One in the folder of this run's own checkpoints may come to be: such a command begins a run and goes on with it.
    """
    own = Path(cfg.checkpoint.save_dir).resolve() in Path(filename).resolve().parents
    if not own and PathManager.supports_rename(filename) and not PathManager.isfile(filename):
        flag = "--finetune-from-model" if filename == cfg.checkpoint.finetune_from_model else "--restore-file"
        raise UsageError(f"{flag} {filename}: no such file; a run goes on from --save-dir by itself")


def is_ours(model: Any, optimizer: str | None = None) -> bool:
    """Whether the model, or a class that it is made from, or the optimizer is this package's."""
    package = __name__.split(".")[0]
    return optimizer == "apollo" or any(kind.__module__.split(".")[0] == package for kind in type(model).__mro__)


def _flag(place: str) -> str:
    return "--" + place.split(".")[-1].replace("_", "-")


def apply() -> None:
    original_init, original_load = Trainer.__init__, Trainer.load_checkpoint
    original_build = FairseqTask.build_generator

    @functools.wraps(original_init)
    def __init__(self: Trainer, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        # A Namespace is what callers of long ago still give; the host turns it into a config.
        self.is_checked = not isinstance(cfg, Namespace) and is_ours(model, getattr(cfg.optimizer, "_name", None))
        if self.is_checked:
            check(cfg, TRAINING)
            check_rates(cfg.optimization.lr)
            check_loss(cfg)
            if is_ours(model):
                check_words(model)
        original_init(self, cfg, task, model, *args, **kwargs)

    @functools.wraps(original_load)
    def load_checkpoint(self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
        if self.is_checked:
            check_restored(self.cfg, filename)
        return original_load(self, filename, *args, **kwargs)

    @functools.wraps(original_build)
    def build_generator(self: FairseqTask, models: Any, args: Any, *more: Any, **kwargs: Any) -> Any:
        if any(map(is_ours, models)):
            check(args, GENERATION)
        return original_build(self, models, args, *more, **kwargs)

    Trainer.__init__, Trainer.load_checkpoint = __init__, load_checkpoint
    FairseqTask.build_generator = build_generator


PATCH = Patch(
    "unchecked", is_needed, apply, "numbers out of range and a missing --restore-file were taken; they are refused"
)

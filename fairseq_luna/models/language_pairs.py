"""fairseq's tasks that train a model for each pair of languages, which no model of this package is."""

from collections.abc import Callable
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask
from fairseq.tasks.semisupervised_translation import SemisupervisedTranslationTask

from ..monkeypatch import wrap_method
from ..usage_error import UsageError
from .shared.state_dict_loading import MismatchErrorMixin


def refuse() -> None:
    """Let these tasks refuse the models of this package; call once per process.

    Otherwise they fail earlier, where they look for their own flags among the model's.
    """
    for task in (MultilingualTranslationTask, SemisupervisedTranslationTask):
        wrap_method(task, "build_model")(_checked)


def _checked(build_model: Callable[..., Any], self: Any, cfg: Any, *more: Any, **options: Any) -> Any:
    name = getattr(cfg, "_name", None)
    if issubclass(ARCH_MODEL_REGISTRY.get(name, object), MismatchErrorMixin):
        raise UsageError(
            f"--task {self.args.task}: it trains a model for each pair of languages, and --arch {name} is one; use"
            " another task, such as translation_multi_simple_epoch, where all pairs share an encoder-decoder"
        )
    return build_model(self, cfg, *more, **options)

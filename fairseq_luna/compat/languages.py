"""fairseq-generate and fairseq-interactive translate with a model of other languages without a word.

``--source-lang de --target-lang en`` with a checkpoint that was trained from en to de gives nonsense (fairseq
0.12.2 and fairseq-fixed 0.12.3.1). With this patch each such checkpoint gives a warning. The
command goes on, because the names of languages are the host's: two may be one language.
"""

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from fairseq import checkpoint_utils

from fairseq_luna.replacing import replaces
from fairseq_luna.trained_languages import difference, known_languages, languages, plain

SUMMARY = "fairseq-generate says nothing of a checkpoint that was trained with other languages; it warns"

logger = logging.getLogger(__name__)


def is_needed() -> bool:
    """Whether fairseq logs nothing about a checkpoint from a to b that a task from b to a reads."""
    said: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = said.append  # type: ignore[assignment,method-assign]
    model = SimpleNamespace(load_state_dict=lambda *_, **__: None)
    task = SimpleNamespace(build_model=lambda _: model, cfg={"source_lang": "b", "target_lang": "a"})
    state = {"cfg": SimpleNamespace(model=None, task={"source_lang": "a", "target_lang": "b"}), "model": {}}
    logging.getLogger().addHandler(handler)
    try:
        with patch.object(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state):
            checkpoint_utils.load_model_ensemble([__file__], task=task)
    finally:
        logging.getLogger().removeHandler(handler)
    return not said


def apply() -> None:
    @replaces(checkpoint_utils, "load_model_ensemble_and_task")
    def load_model_ensemble_and_task(
        original: Any,
        filenames: list[str],
        arg_overrides: Mapping[str, Any] | None = None,
        task: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if task is None:  # it is made of the checkpoint's settings
            return original(filenames, arg_overrides, task, *args, **kwargs)
        settings = getattr(task, "cfg", None) or getattr(task, "args", None)
        wanted = languages(settings)
        models: list[Any] = []
        for filename in filenames:  # one by one, because only the last one's settings are returned
            loaded, cfg, _ = original([filename], arg_overrides, task, *args, **kwargs)
            models += loaded
            folders = (plain(part).get("data") for part in (cfg.task, settings))
            trained, source = known_languages(filename, cfg.task, folders)
            if said := difference(trained, wanted):
                logger.warning(f"{said}, {source}: the translations may be nonsense")
        return models, cfg, task

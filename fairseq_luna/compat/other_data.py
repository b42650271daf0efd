"""Checkpoints that were trained with other languages or dictionaries than those they are used with."""

import logging
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_luna.compat.patch import Patch
from fairseq_luna.compat.recorded_reads import ReadCheckpoint, recorded_reads
from fairseq_luna.dictionary_fingerprints import (
    FINGERPRINTS,
    dictionary_fingerprints,
    dictionary_mismatch,
    recorded_fingerprints,
)
from fairseq_luna.model_settings import settings_as_dict
from fairseq_luna.monkeypatch import wrap_method
from fairseq_luna.trained_languages import known_languages, language_mismatch, languages, untrained_pair

logger = logging.getLogger(__name__)


class OtherLanguages(Patch):
    """A model is silently used, or trained further, with other languages than in its training.

    ``fairseq-generate --source-lang de --target-lang en`` with a checkpoint that was trained from en to de gives
    nonsense, and so does a pair that a model of several languages was not trained with; ``fairseq-train`` resumes from
    such a checkpoint without a word (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch each such checkpoint
    gives a warning. The command goes on, because users choose the names of languages: two names may mean one language.
    """

    name = "languages"
    summary = "fairseq says nothing of a checkpoint that was trained with other languages; it warns"

    def is_needed(self) -> bool:
        """Whether fairseq logs nothing about a checkpoint from a to b that a task from b to a reads."""
        task = SimpleNamespace(cfg={"source_lang": "b", "target_lang": "a"})
        cfg = SimpleNamespace(model=None, task={"source_lang": "a", "target_lang": "b"})
        return not _logged_in_loading({"cfg": cfg, "model": {}}, task)

    def apply(self) -> None:
        @wrap_method(checkpoint_utils, "load_model_ensemble_and_task")
        def load_model_ensemble_and_task(
            original: Any,
            filenames: list[str],
            arg_overrides: Mapping[str, Any] | None = None,
            task: Any = None,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            if task is None:  # fairseq creates it from the checkpoint's settings
                return original(filenames, arg_overrides, task, *args, **kwargs)
            models: list[Any] = []
            for filename in filenames:  # one by one: fairseq returns only the settings of the last file
                loaded, cfg, _ = original([filename], arg_overrides, task, *args, **kwargs)
                models += loaded
                for description in other_languages(filename, cfg.task, task):
                    logger.warning(f"{description}: the translations may be nonsense")
            return models, cfg, task

        @wrap_method(Trainer, "load_checkpoint")
        def load_checkpoint(original: Any, self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
            with recorded_reads() as checkpoints:
                extra_state = original(self, filename, *args, **kwargs)
            for checkpoint in checkpoints:
                for description in other_languages(filename, getattr(checkpoint.cfg, "task", None), self.task):
                    logger.warning(f"{description}: the training goes on from a model of other languages")
            return extra_state


def other_languages(filename: str, trained_settings: Any, task: Any) -> Iterable[str]:
    """Descriptions of how the languages of ``task`` differ from the training's; empty if they do not.

    Args:
        filename: the checkpoint.
        trained_settings: settings of the task of its training.
        task: the task that uses it.
    """
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)
    current = languages(settings)
    folders = (settings_as_dict(part).get("data") for part in (trained_settings, settings))
    trained, source = known_languages(filename, trained_settings, folders)
    if mismatch := language_mismatch(trained, current):
        yield f"{mismatch}, {source}"
    if mismatch := untrained_pair(trained_settings, current):
        yield f"{mismatch}, {source}"


class OtherDictionaries(Patch):
    """A model is silently used, or trained further, with dictionaries of the same size that have other words.

    fairseq compares only the sizes, so that new data with dictionaries of its own makes nonsense of a model if the
    sizes happen to be the same (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch each checkpoint has
    fingerprints of its dictionaries, in ``extra_state``, and gives a warning where others are used. Checkpoints that
    were saved without the patch have none, and give none.
    """

    name = "dictionaries"
    summary = "fairseq says nothing of dictionaries with other words than in training; it warns"

    def is_needed(self) -> bool:
        """Whether fairseq logs nothing about a checkpoint that was trained with other words."""
        task = SimpleNamespace(cfg={}, source_dictionary=SimpleNamespace(symbols=["a"]))
        cfg = SimpleNamespace(model=None, task={})
        state = {"cfg": cfg, "model": {}, "extra_state": {FINGERPRINTS: {"source": "of other words"}}}
        return not _logged_in_loading(state, task)

    def apply(self) -> None:
        @wrap_method(Trainer, "state_dict")
        def state_dict(original: Any, self: Trainer) -> dict[str, Any]:
            state = original(self)
            if fingerprints := dictionary_fingerprints(self.task):
                state["extra_state"][FINGERPRINTS] = fingerprints
            return state

        @wrap_method(Trainer, "load_checkpoint")
        def load_checkpoint(original: Any, self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
            with recorded_reads() as checkpoints:
                extra_state = original(self, filename, *args, **kwargs)
            warn_of_other_dictionaries(filename, checkpoints, self.task)
            return extra_state

        @wrap_method(checkpoint_utils, "load_model_ensemble_and_task")
        def load_model_ensemble_and_task(original: Any, filenames: list[str], *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("state") is not None:  # the caller has read the checkpoint
                return original(filenames, *args, **kwargs)
            with recorded_reads() as checkpoints:
                models, cfg, task = original(filenames, *args, **kwargs)
            warn_of_other_dictionaries(":".join(filenames), checkpoints, task)
            return models, cfg, task


def warn_of_other_dictionaries(filename: str, checkpoints: Iterable[ReadCheckpoint], task: Any) -> None:
    """Warn if one of ``checkpoints``, which were read for ``task``, was trained with other dictionaries."""
    current = dictionary_fingerprints(task)
    for checkpoint in checkpoints:
        if mismatch := dictionary_mismatch(recorded_fingerprints(checkpoint.extra_state), current):
            logger.warning(
                f"{filename}: {mismatch} of its training had other words than the data here: the model takes each word"
                " for another"
            )


def _logged_in_loading(state: Mapping[str, Any], task: Any) -> list[logging.LogRecord]:
    """What fairseq logs, at a warning's level or above, when ``task`` reads a checkpoint with the content ``state``."""
    logged: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = logged.append  # type: ignore[assignment,method-assign]
    task.build_model = _stub_model
    logging.getLogger().addHandler(handler)
    try:
        with patch.object(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state):
            checkpoint_utils.load_model_ensemble([__file__], task=task)
    finally:
        logging.getLogger().removeHandler(handler)
    return logged


def _stub_model(cfg: Any) -> SimpleNamespace:
    return SimpleNamespace(load_state_dict=lambda *_, **__: None)

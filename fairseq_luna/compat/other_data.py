"""Checkpoints that were trained with other languages or dictionaries than those they are used with."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_luna.compat.patch import Patch
from fairseq_luna.compat.recorded_reads import recorded_reads
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
            # Without a task fairseq creates it from the checkpoint's settings; whoever has read the state compares it.
            if task is None or kwargs.get("state") is not None:
                return original(filenames, arg_overrides, task, *args, **kwargs)
            models: list[Any] = []
            for filename in filenames:  # one by one: fairseq returns only the settings of the last file
                loaded, cfg, _ = original([filename], arg_overrides, task, *args, **kwargs)
                models += loaded
                places = (settings_as_dict(part).get("data") for part in (cfg.task, settings_of(task)))
                for description in other_languages(filename, cfg.task, task, places):
                    logger.warning(f"{description}: the translations may be nonsense")
            return models, cfg, task

        @wrap_method(Trainer, "load_checkpoint")
        def load_checkpoint(original: Any, self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
            with recorded_reads() as checkpoints:
                extra_state = original(self, filename, *args, **kwargs)
            for checkpoint in checkpoints:
                trained = getattr(checkpoint.cfg, "task", None)
                places = [settings_as_dict(trained).get("data")]
                for description in other_languages(filename, trained, self.task, places):
                    logger.warning(f"{description}: the training goes on from a model of other languages")
            return extra_state


def settings_of(task: Any) -> Any:
    """The settings of fairseq's ``task``: its config, or in older tasks a namespace."""
    return getattr(task, "cfg", None) or getattr(task, "args", None)


def other_languages(filename: str, trained_settings: Any, task: Any, data_folders: Iterable[object]) -> Iterator[str]:
    """Yield descriptions of how the languages of ``task`` differ from the training's.

    Args:
        filename: the checkpoint.
        trained_settings: settings of the task of its training.
        task: the task that uses it.
        data_folders: where the data of its training may be; its names tell languages that the settings do not.
    """
    current = languages(settings_of(task))
    trained, source = known_languages(filename, trained_settings, data_folders)
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
            for checkpoint in checkpoints:
                warn_of_other_dictionaries(filename, checkpoint.fingerprints, self.task)
            return extra_state

        @wrap_method(checkpoint_utils, "load_model_ensemble_and_task")
        def load_model_ensemble_and_task(
            original: Any,
            filenames: list[str],
            arg_overrides: Mapping[str, Any] | None = None,
            task: Any = None,
            strict: bool = True,
            suffix: str = "",
            num_shards: int = 1,
            state: Any = None,
        ) -> Any:
            if state is not None or num_shards != 1:  # whoever has read the state compares it
                return original(filenames, arg_overrides, task, strict, suffix, num_shards, state)
            models: list[Any] = []
            for filename in filenames:
                path = checkpoint_utils.get_maybe_sharded_checkpoint_filename(filename, suffix, 0, 1)
                # A file that is missing is left to fairseq's own error.
                exists = os.path.exists(path)
                state = checkpoint_utils.load_checkpoint_to_cpu(path, arg_overrides) if exists else None
                loaded, cfg, task = original([filename], arg_overrides, task, strict, suffix, num_shards, state)
                models += loaded
                recorded = recorded_fingerprints(state.get("extra_state")) if state else {}
                warn_of_other_dictionaries(filename, recorded, task)
            return models, cfg, task


def warn_of_other_dictionaries(filename: str, recorded: Mapping[str, str], task: Any) -> None:
    """Warn if the dictionaries of ``task`` are not those of the training of the checkpoint ``filename``.

    Args:
        recorded: the fingerprints in the checkpoint.
    """
    if mismatch := dictionary_mismatch(recorded, dictionary_fingerprints(task)):
        logger.warning(
            f"{filename}: {mismatch} of its training had other words than the data here: the model reads and writes"
            " wrong words; prepare the data with the dictionaries of the training (fairseq-luna prepare --dictionary)"
        )


def _logged_in_loading(state: Mapping[str, Any], task: Any) -> list[logging.LogRecord]:
    """The warnings that fairseq logs when ``task`` reads a checkpoint with the content ``state``."""
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

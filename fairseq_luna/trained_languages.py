"""Languages of a checkpoint's training. With other languages its model translates nonsense."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .model_settings import settings_as_dict
from .usage_error import flag

NAMES = ("source_lang", "target_lang")


def languages(settings: Any) -> dict[str, str]:
    """``source_lang`` and ``target_lang`` as far as they are known.

    Args:
        settings: of a task, or a whole command line; a mapping, a Namespace or None.
    """
    known = settings_as_dict(settings)  # omegaconf's too
    return {name: str(known[name]) for name in NAMES if known.get(name)}


def known_languages(file: object, settings: Any, folders: Iterable[object]) -> tuple[dict[str, str], str]:
    """Languages of the training of the checkpoint ``file``, as far as they are known, and where they are recorded.

    A training without language flags took its languages from the file names of its data.

    Args:
        settings: of the checkpoint's task.
        folders: where the data of the training may be; the first with data of one direction counts.
    """
    if (known := languages(settings)) or settings_as_dict(settings).get("lang_pairs"):
        return known, f"as {file} says"
    for folder in folders:
        if found_languages := _languages_of_data(str(folder or "").split(os.pathsep)[0]):
            return found_languages, f"as the names of the data in {folder} say"
    return {}, f"as {file} says"


def _languages_of_data(folder: str) -> dict[str, str]:
    """The languages in names such as ``train.en-de.en.idx``; none if there are several directions or no such files."""
    names = (file.name.split(".") for file in Path(folder).glob("train*.idx")) if folder else ()
    pairs = {tuple(name[1].split("-")) for name in names if len(name) == 4}
    return dict(zip(NAMES, pairs.pop(), strict=True)) if [*map(len, pairs)] == [2] else {}


def language_mismatch(trained: Mapping[str, str], direction: Mapping[str, str]) -> str | None:
    """A description of how the languages of ``direction`` differ from the training's; None if they do not."""
    if all(direction[name] == trained.get(name, direction[name]) for name in direction):
        return None
    shown = ", ".join(f"{flag(name)} {value}" for name, value in direction.items())
    return f"{shown}: its training was {describe_languages(trained)}"


def untrained_pair(settings: Any, direction: Mapping[str, str]) -> str | None:
    """The pair ``direction``, such as ``de-en``, if ``settings`` of a task list pairs without it; else None."""
    pairs: list[str] = []
    for name in ("lang_pairs", "extra_lang_pairs"):  # the second is of other data of the same training
        listed = settings_as_dict(settings).get(name) or ()
        pairs += listed.split(",") if isinstance(listed, str) else map(str, listed)
    pair = "-".join(direction.get(name, "") for name in NAMES)
    if not pairs or len(direction) < 2 or pair in pairs:
        return None
    return f"{pair}: its training was of {', '.join(pairs)}"


def describe_languages(trained: Mapping[str, str]) -> str:
    """``trained`` in words, such as "from en to de"."""
    ways = zip(("from", "to"), (trained.get(name) for name in NAMES), strict=True)
    return " ".join(f"{way} {language}" for way, language in ways if language)

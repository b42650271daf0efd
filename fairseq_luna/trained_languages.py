"""The languages that a checkpoint was trained with: a model that gets another one translates nonsense."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from .usage_error import flag

NAMES = ("source_lang", "target_lang")


def languages(settings: Any) -> dict[str, str]:
    """``source_lang`` and ``target_lang`` as far as they are known.

    Args:
        settings: of a task, or a whole command line; a mapping, a Namespace or None.
    """
    found = _plain(settings)  # omegaconf's too
    return {name: str(found[name]) for name in NAMES if found.get(name)}


def difference(trained: Mapping[str, str], given: Mapping[str, str]) -> str | None:
    """How the languages that were ``given`` differ from those of the training; None if they do not, as far as known."""
    if all(given[name] == trained.get(name, given[name]) for name in given):
        return None
    shown = ", ".join(f"{flag(name)} {value}" for name, value in given.items())
    return f"{shown}: its training was {described(trained)}"


def untrained_pair(settings: Any, given: Mapping[str, str]) -> str | None:
    """The pair ``given``, such as ``de-en``, if ``settings`` of a task list pairs without it; else None."""
    pairs = _plain(settings).get("lang_pairs") or ()
    pairs = pairs.split(",") if isinstance(pairs, str) else [str(pair) for pair in pairs]
    pair = "-".join(given.get(name, "") for name in NAMES)
    return (
        f"{pair}: its training was of {', '.join(pairs)}" if pairs and len(given) == 2 and pair not in pairs else None
    )


def described(trained: Mapping[str, str]) -> str:
    """``trained`` in words."""
    ways = zip(("from", "to"), (trained.get(name) for name in NAMES), strict=True)
    return " ".join(f"{way} {language}" for way, language in ways if language)


def _plain(settings: Any) -> Mapping[str, Any]:
    return vars(settings) if isinstance(settings, Namespace) else settings or {}

"""Fingerprints of the dictionaries of a training.

With a dictionary of the same size and other words, a model reads and writes other words, and nothing else shows it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

# The entry in a checkpoint's extra_state: a fingerprint for "source" and "target", or for each language.
FINGERPRINTS = "dictionary_fingerprints"


def dictionary_fingerprints(task: Any) -> dict[str, str]:
    """A fingerprint of the words of each dictionary of fairseq's ``task``, in their order; empty if it has none.

    The names are languages if the task has a dictionary for each, otherwise "source" and "target".
    """
    by_language = getattr(task, "dicts", None)
    if isinstance(by_language, Mapping):
        dictionaries = dict(by_language)
    else:
        dictionaries = {side: _dictionary(task, f"{side}_dictionary") for side in ("source", "target")}
    return {
        str(name): hashlib.sha256("\n".join(dictionary.symbols).encode(errors="surrogatepass")).hexdigest()
        for name, dictionary in dictionaries.items()
        if isinstance(getattr(dictionary, "symbols", None), list)
    }


def _dictionary(task: Any, name: str) -> Any:
    try:
        return getattr(task, name, None)
    except NotImplementedError:  # fairseq's base class
        return None


def recorded_fingerprints(extra_state: Any) -> dict[str, str]:
    """The fingerprints in a checkpoint's ``extra_state``; empty in a checkpoint that was saved without them."""
    return dict((extra_state or {}).get(FINGERPRINTS) or {})


def dictionary_mismatch(recorded: Mapping[str, str], current: Mapping[str, str]) -> str | None:
    """A description of the dictionaries that differ, such as "the source dictionary"; None if none is known to."""
    names = [name for name in recorded if current.get(name, recorded[name]) != recorded[name]]
    if not names:
        return None
    return f"the {' and '.join(names)} dictionar{'y' if len(names) == 1 else 'ies'}"

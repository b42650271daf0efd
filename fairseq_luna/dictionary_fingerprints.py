"""Fingerprints of the dictionaries of a training.

With a dictionary of the same size but other words, a model reads and writes wrong words, and no error shows it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

# The entry in a checkpoint's extra_state: a fingerprint for "source", "target" and "label", or for each language.
FINGERPRINTS = "dictionary_fingerprints"
MASK = "<mask>"


def dictionary_fingerprints(task: Any) -> dict[str, str]:
    """A fingerprint of the words of each dictionary of fairseq's ``task``, in their order; empty if it has none.

    The names are languages if the task has a dictionary for each, otherwise "source", "target" and "label". The mask
    symbol that pretraining adds after the last word is left out: fairseq drops it for translation.
    """
    by_language = getattr(task, "dicts", None)
    if isinstance(by_language, Mapping):
        dictionaries = dict(by_language)
    else:
        dictionaries = {side: _dictionary(task, f"{side}_dictionary") for side in ("source", "target", "label")}
    return {
        str(name): _fingerprint(dictionary.symbols)
        for name, dictionary in dictionaries.items()
        if isinstance(getattr(dictionary, "symbols", None), list)
    }


def _fingerprint(symbols: list[str]) -> str:
    words = symbols[:-1] if symbols[-1:] == [MASK] else symbols
    return hashlib.sha256("\n".join(words).encode(errors="surrogatepass")).hexdigest()


def _dictionary(task: Any, name: str) -> Any:
    try:
        return getattr(task, name, None)
    except NotImplementedError:  # fairseq's base class
        return None


def recorded_fingerprints(extra_state: Any) -> dict[str, str]:
    """The fingerprints in a checkpoint's ``extra_state``; empty in a checkpoint that was saved without them."""
    return dict((extra_state or {}).get(FINGERPRINTS) or {})


def dictionary_mismatch(recorded: Mapping[str, str], current: Mapping[str, str]) -> str | None:
    """A description of the dictionaries that differ, such as "the source dictionary"; None if all known ones agree."""
    names = [name for name in recorded if current.get(name, recorded[name]) != recorded[name]]
    if not names:
        return None
    return f"the {' and '.join(names)} dictionar{'y' if len(names) == 1 else 'ies'}"

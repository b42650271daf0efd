"""Checks of options of translation, for trained and for exported models."""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

from .usage_error import UnreadableText, UsageError

COUNTS = (
    *("beam", "nbest", "max_tokens", "batch_size", "buffer_size", "threads"),
    *("max_source_positions", "max_target_positions"),
)
NUMBERS = ("lenpen", "max_len_a", "max_len_b", "min_len", "unkpen", "temperature", "sampling_topp", "diversity_rate")
LENGTHS = ("max_len_a", "max_len_b", "min_len")
# Counts that are off at fairseq's default.
OPTIONAL_COUNTS = {"sampling_topk": -1, "diverse_beam_groups": -1, "no_repeat_ngram_size": 0}
# Kinds of search. fairseq runs one of them: it refuses some pairs, and silently ignores one option of other pairs.
SEARCHES = (
    *("sampling", "diverse_beam_groups", "match_source_len", "diversity_rate"),
    *("constraints", "prefix_allowed_tokens_fn"),
)


def check_numbers(options: Mapping[str, Any], *, spelled: Callable[[str], str] = str) -> None:
    """Check every number among ``options``.

    Args:
        options: values by name.
        spelled: gives the spelling of a name in error messages, such as :func:`.usage_error.flag`.

    Raises:
        UsageError: one is not a number or not finite, a length is negative, a count is not a whole number of 1 or
            more, or a temperature is not above 0.
    """
    for name, value in options.items():
        if value is None:
            continue
        if name in COUNTS and not (_is_instance(Integral, value) and int(value) >= 1):
            raise UsageError(f"{spelled(name)} {value}: must be a whole number of 1 or more")
        if name in NUMBERS and not _is_instance(Real, value):
            raise UsageError(f"{spelled(name)} {value}: must be a number")
        if isinstance(value, Real) and not math.isfinite(value):
            raise UsageError(f"{spelled(name)} {value}: must be a finite number")
        if (none := OPTIONAL_COUNTS.get(name)) is not None and not (
            _is_instance(Integral, value) and (value == none or value >= 1)
        ):
            raise UsageError(f"{spelled(name)} {value}: must be a whole number of 1 or more, or {none} for none")
        if name in LENGTHS and value < 0:
            raise UsageError(f"{spelled(name)} {value}: must be 0 or more")
        if name == "temperature" and not value > 0:
            raise UsageError(f"{spelled(name)} {value}: must be above 0")


def check_search(options: Mapping[str, Any], *, vocabulary_size: int, spelled: Callable[[str], str] = str) -> None:
    """Check that ``options`` of a search go together, after :func:`check_numbers`.

    Args:
        options: must have the ``beam``; missing options have fairseq's defaults.
        vocabulary_size: number of tokens in the target dictionary.
        spelled: see :func:`check_numbers`.

    Raises:
        UsageError: an option would have no effect, or contradicts another one.
    """
    options_in_use = {name: value for name, value in options.items() if value is not None}
    beam, topk, topp = (
        options_in_use["beam"],
        options_in_use.get("sampling_topk", -1),
        options_in_use.get("sampling_topp", -1.0),
    )
    if (nbest := options_in_use.get("nbest", 1)) > beam:
        raise UsageError(
            f"{spelled('nbest')} {nbest}: must be at most {spelled('beam')} {beam}, the number of translations that are"
            " searched"
        )
    sampling = spelled("sampling")
    if not options_in_use.get("sampling"):
        for name, value in (("sampling_topk", topk), ("sampling_topp", topp)):
            if value != -1:
                raise UsageError(f"{spelled(name)} {value}: has an effect only with {sampling}; give {sampling} too")
    if topk > vocabulary_size:
        raise UsageError(
            f"{spelled('sampling_topk')} {topk}: must be at most {vocabulary_size}, the tokens of the target's"
            " dictionary"
        )
    if topp != -1 and not 0 < topp <= 1:
        raise UsageError(f"{spelled('sampling_topp')} {topp}: must be above 0 and at most 1")
    if topk != -1 and topp != -1:
        raise UsageError(f"{spelled('sampling_topk')} {topk}, {spelled('sampling_topp')} {topp}: give one of them")
    if (groups := options_in_use.get("diverse_beam_groups", -1)) > 0 and beam % groups:
        raise UsageError(f"{spelled('diverse_beam_groups')} {groups}: must divide {spelled('beam')} {beam}")
    chosen = [name for name in SEARCHES if _is_chosen(options_in_use.get(name, False))]
    if len(chosen) > 1:
        raise UsageError(f"{', '.join(map(spelled, chosen))}: are different searches; give one of them")


def one_or_several(sentences: Any) -> list[str]:
    """The texts in ``sentences``, which is a text or an iterable of texts.

    Raises:
        TypeError: ``sentences`` is something else.
        UnreadableText: a text has a NUL character, or half of a surrogate pair.
    """
    texts: Iterable[Any] = iter([sentences])
    if not isinstance(sentences, str | bytes):
        with suppress(TypeError):  # no iterable; an array without dimensions is none either, despite its method
            texts = iter(sentences)
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"sentences: must be a text or several, of type str; there is {text!r:.50}")
        if "\0" in text:
            raise UnreadableText(f"{text!r:.50}: has a NUL character; is it text?")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            reason = f"{error.reason} at character {error.start + 1}"
            raise UnreadableText(f"{text!r:.50}: cannot be written in UTF-8 ({reason})") from error
    return texts


def _is_chosen(value: Any) -> bool:
    """Whether the value of one of ``SEARCHES`` asks for that search."""
    return float(value) > 0 if isinstance(value, Real) else bool(value)


def _is_instance(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)

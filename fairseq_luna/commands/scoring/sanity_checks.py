"""Sanity checks of scored text: signs that it is tokenized, or that the reference belongs to another test."""

import html
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...text_files import truncate
from ...usage_error import UsageError

# Percent. Sentences in another order, of another test or in another language share 10 to 22 with the references of six
# German tests; a translation of 10 BLEU shares 45.
_MATCHED = 25
_UNKNOWN = "<<unk>>"  # fairseq's, for words of the reference that the model does not know


def tokenized_warning(name: object, text: Sequence[str]) -> str | None:
    """A warning if most full stops at the end of a line follow a space."""
    if 2 * sum(line.endswith(" .") for line in text) <= sum(line.endswith(".") for line in text):
        return None
    return f"{name} looks tokenized, as the reference should not be: detokenize it first"


def wrong_reference_warning(name: object, references: Sequence[Path], matched: float) -> str | None:
    """A warning if few words of the system ``name`` are in the same line of the references.

    Args:
        matched: percentage of matched words, see :class:`~.metrics.Measure`.
    """
    if matched >= _MATCHED:
        return None
    named, is_it = (
        " or ".join(map(str, references)),
        "is it the reference" if len(references) == 1 else "are they references",
    )
    return (
        f"only {matched:.0f}% of the words of {name} are in the same line of {named}: {is_it} of this test, in this "
        "language and order?"
    )


def check_test(name: object, targets: Mapping[int, str], references: Mapping[Path, Sequence[str]]) -> str | None:
    """A warning if some ``targets`` are in the same line of none of the ``references``.

    Args:
        targets: reference lines in the output of fairseq-generate, see :class:`~.system_output.SystemOutput`. Lines
            with unknown words are left out.

    Raises:
        UsageError: most targets are in no reference.
    """
    sides = list(references.values())
    known = {number: text for number, text in targets.items() if _UNKNOWN not in text and number < len(sides[0])}
    others = [
        number for number, text in known.items() if _letters(text) not in {_letters(side[number]) for side in sides}
    ]
    if not others:
        return None
    first = min(others)
    expected_line, actual_line = truncate(sides[0][first], 50), truncate(known[first], 50)
    named = " or ".join(map(str, references))
    message = (
        f"{named} differs from the reference of the test that {name} is of in {len(others):,} of {len(known):,} "
        f"lines: line {first + 1} is '{expected_line}', not '{actual_line}' (T-{first})"
    )
    if 2 * len(others) > len(known):
        raise UsageError(f"{message}; give that test's reference, in its order")
    return message


def _letters(text: str) -> str:
    """Letters and digits of ``text``, which subwords, tokenizers and SentencePiece's normalization keep."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", html.unescape(text)).casefold()))

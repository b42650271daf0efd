"""Signs that text is not what a score takes it for. Where it may be right, the sign is a warning."""

import html
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...usage_error import UsageError
from ..text_files import shortened

# Percent. Sentences in another order, of another test or in another language share 10 to 22 with the references of six
# German tests; a translation of 10 BLEU shares 45.
_MATCHED = 25
_UNKNOWN = "<<unk>>"  # fairseq's, for words of the reference that the model does not know


def tokenised(name: object, text: Sequence[str]) -> str | None:
    """A warning if most full stops at the end of a sentence follow a space."""
    if 2 * sum(line.endswith(" .") for line in text) <= sum(line.endswith(".") for line in text):
        return None
    return f"{name} looks tokenised, as the reference should not be: detokenise it first"


def another_reference(name: object, references: Sequence[Path], matched: float) -> str | None:
    """A warning if few words are in their reference.

    Args:
        matched: percentage, of :class:`~.measures.Measure`.
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


def another_test(name: object, targets: Mapping[int, str], references: Mapping[Path, Sequence[str]]) -> str | None:
    """A warning if some lines of none of the ``references`` are the text that fairseq-generate had as the reference.

    Args:
        targets: of :class:`~.generated.Generated`. Those with unknown words are left out.

    Raises:
        UsageError: most of them are not.
    """
    sides = list(references.values())
    known = {number: text for number, text in targets.items() if _UNKNOWN not in text and number < len(sides[0])}
    others = [
        number for number, text in known.items() if _letters(text) not in {_letters(side[number]) for side in sides}
    ]
    if not others:
        return None
    first = min(others)
    ours, theirs = shortened(sides[0][first], 50), shortened(known[first], 50)
    named = " or ".join(map(str, references))
    said = (
        f"{named} differs from the reference of the test that {name} is of in {len(others):,} of {len(known):,} "
        f"lines: line {first + 1} is '{ours}', not '{theirs}' (T-{first})"
    )
    if 2 * len(others) > len(known):
        raise UsageError(f"{said}; give that test's reference, in its order")
    return said


def _letters(text: str) -> str:
    """Letters and digits, which neither pieces nor tokenizers nor SentencePiece's normalisation change."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", html.unescape(text)).casefold()))

"""Signs that text is not what a score takes it for. Each is a warning, because it may be right."""

from collections.abc import Sequence
from pathlib import Path

# Percent. Sentences in another order, of another test or in another language share 10 to 22 with the references of six
# German tests; a translation of 10 BLEU shares 45.
_MATCHED = 25


def tokenised(name: object, text: Sequence[str]) -> str | None:
    """A warning if most full stops at the end of a sentence follow a space."""
    if 2 * sum(line.endswith(" .") for line in text) <= sum(line.endswith(".") for line in text):
        return None
    return f"{name} looks tokenised, as the reference should not be: detokenise it first"


def another_reference(name: object, reference: Path, matched: float) -> str | None:
    """A warning if few words are in their reference.

    Args:
        matched: percentage, of :class:`~.measures.Measure`.
    """
    if matched >= _MATCHED:
        return None
    return (
        f"only {matched:.0f}% of the words of {name} are in the same line of {reference}: is it the reference of this "
        "test, in this language and order?"
    )

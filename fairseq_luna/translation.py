"""What a translator returns where more than the text is asked for."""

from typing import NamedTuple


class Translation(NamedTuple):
    """A translation.

    Attributes:
        text: it.
        score: its log-probability divided by its length in pieces to the power of ``lenpen``, as fairseq gives it; 0
            for a text that says nothing, whose translation is "".
        alignment: pairs of a word of the source and a word of ``text``, both numbered from 0 between spaces; None
            unless alignments were asked for.
    """

    text: str
    score: float
    alignment: list[tuple[int, int]] | None = None


EMPTY = Translation("", 0.0)

"""Result of a translator, if more than the text is asked for."""

from typing import NamedTuple


class Translation(NamedTuple):
    """A translation.

    Attributes:
        text: the translation.
        score: log-probability / length in tokens ** ``lenpen``, as in fairseq; 0 for a blank text, which is translated
            as "".
        alignment: pairs of a source word and a word of ``text``, both numbered from 0 between spaces; None unless
            alignments were asked for.
    """

    text: str
    score: float
    alignment: list[tuple[int, int]] | None = None


EMPTY = Translation("", 0.0)

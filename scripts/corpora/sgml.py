"""WMT's test sets before 2021: one sentence in each <seg> of a file that resembles SGML.

It has no document type, and ampersands may or may not be entities, so that strict parsers refuse it.
"""

import html
import re
from pathlib import Path
from typing import NamedTuple

from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.text_files import read_lines

_OPENED = re.compile(r"<seg\b([^>]*)>", re.IGNORECASE)
_CLOSED = re.compile(r"</seg\s*>", re.IGNORECASE)
_NUMBER = re.compile(r"""\bid\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
# Only entities with a semicolon: "R&D" and "AT&T" are unchanged.
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d+|#x[0-9a-f]+);", re.IGNORECASE)


class Segment(NamedTuple):
    number: str
    text: str


def read_segments(path: Path) -> list[Segment]:
    """The sentences of a plain or gzipped file; entities are resolved and line breaks become spaces.

    Raises:
        CommandError: there is no segment, or one is not closed.
    """
    document = "\n".join(read_lines(path))
    openings = list(_OPENED.finditer(document))
    if not openings:
        raise CommandError(f"{path}: no <seg> in it; is it one of WMT's .sgm files?")
    segments = []
    for opening, following in zip(openings, [*openings[1:], None], strict=True):
        limit = following.start() if following else len(document)
        closing = _CLOSED.search(document, opening.end(), limit)
        if closing is None:
            line = document.count("\n", 0, opening.start()) + 1
            raise CommandError(f"{path}, line {line}: a <seg> that is not closed")
        number = _NUMBER.search(opening[1])
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), document[opening.end() : closing.start()])
        segments.append(Segment(number[1] if number else "", " ".join(text.split())))
    return segments

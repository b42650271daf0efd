"""fairseq's dictionaries of SentencePiece's pieces: every piece that text can be cut into is in them."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import sentencepiece
from fairseq.data import Dictionary

from ...usage_error import UsageError
from .parallel import count_words
from .pieces import write_restricted

DICTIONARY, MODEL = "dict.txt", "joint.model"
# For the matrix units of GPUs, as in fairseq-preprocess.
_MULTIPLE = 8


class Unknown(NamedTuple):
    """How many of a text's tokens a dictionary lacks."""

    tokens: int
    total: int

    def __str__(self) -> str:
        return f"{100 * self.tokens / self.total:.2g} % ({self.tokens:,} of {self.total:,})"


def write_with_every_piece(
    model: Path, texts: Iterable[Path], folder: Path, workers: int, symbols: Iterable[str] = ()
) -> None:
    """Write ``dict.txt``, with all pieces of ``model``, and ``joint.model`` to ``folder``.

    fairseq-preprocess would leave out the pieces that stand in the training text only as parts of longer ones, and a
    new word would be unknown in all its parts. Nothing is learned of them either. So ``joint.model``, which is
    ``model`` otherwise, cuts text into smaller pieces instead.

    Args:
        texts: the training text in pieces.
        symbols: strings that remain pieces, wherever they occur.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(count_words(text, workers=workers))
    made, processor = Dictionary(), sentencepiece.SentencePieceProcessor(model_file=str(model))
    for number in range(processor.get_piece_size()):
        if not (processor.is_unknown(number) or processor.is_control(number)):
            piece = processor.id_to_piece(number)
            made.add_symbol(piece, counts[piece])
    made.finalize(padding_factor=_MULTIPLE)
    folder.mkdir()
    made.save(str(folder / DICTIONARY))
    write_restricted(model, {*counts, *symbols}, folder / MODEL)


def read(path: Path) -> Dictionary:
    """The dictionary of a file. Raises UsageError if it is none."""
    try:
        found = Dictionary.load(str(path))
    except Exception as error:  # fairseq raises plain ones
        raise UsageError(f"--dictionary {path}: is no dictionary of fairseq's ({error})") from error
    if len(found) == found.nspecial:
        raise UsageError(f"--dictionary {path}: has no words")
    return found


def unknown(text: Path, words: Dictionary, workers: int) -> Unknown:
    """Of the pieces in a file."""
    counts = count_words(text, workers=workers)
    lacking = (count for word, count in counts.items() if words.index(word) == words.unk())
    return Unknown(sum(lacking), sum(counts.values()))

"""fairseq dictionaries of SentencePiece pieces: new ones, and existing ones with their SentencePiece model."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq.data import Dictionary
from sentencepiece import SentencePieceProcessor

from ...piece_models import known_share
from ...usage_error import UsageError
from .parallel import count_words
from .sentencepiece_model import write_restricted

DICTIONARY, MODEL = "dict.txt", "joint.model"
# For the matrix units of GPUs, as in fairseq-preprocess.
_MULTIPLE = 8
# Nearly all words of a dictionary are pieces of its own model; models of one alphabet share many pieces.
LEAST_OWN = 0.95
FILLER = "madeupword"  # fairseq fills up a dictionary with them


class UnknownTokenCount(NamedTuple):
    """Number of tokens of a text that are not in a dictionary, and of all tokens."""

    tokens: int
    total: int

    def __str__(self) -> str:
        return f"{100 * self.tokens / self.total:.2g} % ({self.tokens:,} of {self.total:,})"


def write_with_every_piece(
    model: Path, texts: Iterable[Path], folder: Path, workers: int, symbols: Iterable[str] = ()
) -> None:
    """Write ``dict.txt``, with all pieces of ``model``, and ``joint.model`` to ``folder``.

    fairseq-preprocess would leave out pieces that occur in the training text only inside longer pieces, and a new word
    would then consist of unknown tokens. A model learns nothing about these pieces either. ``joint.model`` is ``model``
    without them, and segments such a word into smaller pieces.

    Args:
        texts: files of the training text in pieces.
        symbols: strings that remain pieces, wherever they occur.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(count_words(text, workers=workers))
    dictionary, processor = Dictionary(), SentencePieceProcessor(model_file=str(model))
    for number in range(processor.get_piece_size()):
        if not (processor.is_unknown(number) or processor.is_control(number)):
            piece = processor.id_to_piece(number)
            dictionary.add_symbol(piece, counts[piece])
    dictionary.finalize(padding_factor=_MULTIPLE)
    folder.mkdir()
    dictionary.save(str(folder / DICTIONARY))
    write_restricted(model, {*counts, *symbols}, folder / MODEL)


def read_dictionary(path: Path) -> Dictionary:
    """Read a fairseq dictionary. Raises UsageError if the file is not one."""
    try:
        dictionary = Dictionary.load(str(path))
    except Exception as error:  # fairseq raises plain ones
        raise UsageError(f"--dictionary {path}: is not a fairseq dictionary ({error})") from error
    if len(dictionary) == dictionary.nspecial:
        raise UsageError(f"--dictionary {path}: has no words")
    return dictionary


def count_unknown(text: Path, words: Dictionary, workers: int) -> UnknownTokenCount:
    """Count the tokens of the file ``text`` that ``words`` lacks."""
    counts = count_words(text, workers=workers)
    lacking = (count for word, count in counts.items() if words.index(word) == words.unk())
    return UnknownTokenCount(sum(lacking), sum(counts.values()))


def check_existing(model: Path, dictionaries: Sequence[Path]) -> None:
    """Raises UsageError unless ``model`` and ``dictionaries`` can be read and belong together."""
    try:
        processor = SentencePieceProcessor(model_file=str(model))
    except (OSError, RuntimeError) as error:
        raise UsageError(f"--pieces {model}: is not a SentencePiece model, or cannot be read") from error
    for path in dictionaries:
        dictionary = read_dictionary(path)
        words = [word for word in dictionary.symbols[dictionary.nspecial :] if not word.startswith(FILLER)]
        if (share := known_share(processor, words)) < LEAST_OWN:
            raise UsageError(
                f"--dictionary {path}: {share:.0%} of its words are pieces of --pieces {model}, so that it is another"
                " model's; give the dictionary and the SentencePiece model of the same data"
            )

"""Pieces of raw text by SentencePiece, one model for both languages."""

import errno
import os
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import sentencepiece

from ...piece_models import restricted
from ...usage_error import UsageError
from ..progress import working
from ..text_files import count_lines
from .characters import characters, write_rules

# A larger corpus is sampled, so that memory is bounded.
_SENTENCES_IN_MEMORY = 4_000_000
# SentencePiece learns nothing from longer lines; by default from none of 4,192 bytes, shorter than many documents.
LONGEST_LINE = 1 << 20
_SEED = 1
# fairseq's name for words that its dictionary lacks.
_UNKNOWN = "<unk>"


def learn_pieces(
    texts: Sequence[Path], folder: Path, *, vocabulary: int, coverage: float, symbols: Sequence[str] = ()
) -> None:
    """Write ``joint.model`` and ``joint.vocab``, a byte-pair encoding, to ``folder``.

    The model replaces few characters (:mod:`.characters`), so that the pieces of a sentence can be joined to it again;
    only several spaces become one, and those at the ends none.

    Args:
        vocabulary: number of pieces; fewer are made, and that is said, if the text has no more.
        coverage: share of the text's characters that get a piece; the rarest ones are unknown.
        symbols: strings that are pieces of their own wherever they occur.
    """
    sentencepiece.set_random_generator_seed(_SEED)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with working("learning pieces"):
            cutting, joining = write_rules(characters(texts, coverage), folder)
            sentencepiece.SentencePieceTrainer.train(
                input=[str(text) for text in texts],
                model_prefix=str(folder / "joint"),
                model_type="bpe",
                vocab_size=vocabulary,
                hard_vocab_limit=False,
                character_coverage=coverage,
                user_defined_symbols=list(symbols),
                input_sentence_size=_SENTENCES_IN_MEMORY,
                shuffle_input_sentence=True,
                max_sentence_length=LONGEST_LINE,
                minloglevel=2,
                normalization_rule_tsv=str(cutting),
                denormalization_rule_tsv=str(joining),
            )
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"SentencePiece cannot learn --vocabulary-size {vocabulary}: {reason}") from error
    learned = count_lines(folder / "joint.vocab")
    if not _is_complete(folder / "joint.model", learned):  # SentencePiece does not look whether it could write
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    if learned < vocabulary:
        print(f"  only {learned:,} pieces: the text has no more")


def write_restricted(model: Path, words: Container[str], target: Path) -> None:
    """Write ``model`` so that it cuts text into pieces among ``words`` alone, where it can."""
    processor = restricted(sentencepiece.SentencePieceProcessor(model_file=str(model)), words)
    target.write_bytes(processor.serialized_model_proto())


def _is_complete(model: Path, pieces: int) -> bool:
    """Whether ``model`` can be read and has so many ``pieces``."""
    try:
        return len(sentencepiece.SentencePieceProcessor(model_file=str(model))) == pieces
    except (OSError, RuntimeError):
        return False


@dataclass(frozen=True)
class Cut:
    """Lines of raw text to lines of pieces between spaces; unknown pieces and marks are ``<unk>``."""

    model: Path

    def __call__(self, lines: list[str]) -> list[str]:
        processor, names = _load(self.model.resolve(), self.model.stat().st_mtime_ns)
        return [" ".join(names[index] for index in line) for line in processor.encode(lines, num_threads=1)]


@lru_cache
def _load(model: Path, changed: int) -> tuple[sentencepiece.SentencePieceProcessor, list[str]]:
    """The model and its pieces by number; a file that has ``changed`` is read again."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    pieces = ((index, processor.id_to_piece(index)) for index in range(len(processor)))
    # Marks such as </s>, which some models read in text, would end a sentence for fairseq.
    names = [
        _UNKNOWN if processor.is_unknown(index) or processor.is_control(index) else piece for index, piece in pieces
    ]
    return processor, names

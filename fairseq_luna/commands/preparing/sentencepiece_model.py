"""One SentencePiece model for both languages: learning it, and segmenting text with it.

SentencePiece's own normalization, such as nmt_nfkc, rewrites full-width punctuation, superscripts and fractions, also
in the text that a model learns to write. Here a character of the training text stays as it is. A character that the
training text lacks would be unknown; it becomes an equivalent by Unicode's normalization forms if the text has one: a
space for a no-break space, letters for a ligature, a composed letter for a letter and its accent.
"""

import errno
import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import sentencepiece

from ...piece_models import restrict_to_words
from ...progress import show_elapsed_time
from ...subwords import CONTROLS, NO_PIECE, RESERVED, SPACE, SPECIAL, escape_character
from ...text_files import count_lines, read_lines
from ...usage_error import UsageError

# A larger corpus is sampled, so that memory is bounded.
_SENTENCES_IN_MEMORY = 4_000_000
# SentencePiece learns nothing from longer lines; by default from none of 4,192 bytes, shorter than many documents.
LONGEST_LINE = 1 << 20
_SEED = 1
# fairseq's name for words that its dictionary lacks.
_UNKNOWN = "<unk>"
NORMALIZATION, DENORMALIZATION = "normalization.tsv", "denormalization.tsv"
# From the form that changes least to the one that changes most.
_FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
# Characters without a shape.
_INVISIBLE = ("Cc", "Cf")
Rule = tuple[str, str]


def learn_pieces(
    texts: Sequence[Path], folder: Path, *, vocabulary: int, coverage: float, symbols: Sequence[str] = ()
) -> None:
    """Write ``joint.model`` and ``joint.vocab``, a byte-pair encoding, to ``folder``.

    The pieces of a sentence can be joined to the same sentence again, except for repeated spaces and for spaces at its
    ends.

    Args:
        vocabulary: number of pieces. If the text has fewer, fewer are learned and a line says so.
        coverage: share of the text's characters that get a piece; the rarest characters are unknown.
        symbols: strings that are pieces of their own wherever they occur.
    """
    sentencepiece.set_random_generator_seed(_SEED)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with show_elapsed_time("learning pieces"):
            cutting, joining = write_rules(frequent_characters(texts, coverage), folder)
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
    """Write ``model`` restricted to the pieces in ``words``, as far as text can be segmented without other pieces."""
    processor = restrict_to_words(sentencepiece.SentencePieceProcessor(model_file=str(model)), words)
    target.write_bytes(processor.serialized_model_proto())


def _is_complete(model: Path, pieces: int) -> bool:
    """Whether ``model`` can be read and has ``pieces`` pieces."""
    try:
        return len(sentencepiece.SentencePieceProcessor(model_file=str(model))) == pieces
    except (OSError, RuntimeError):
        return False


@dataclass(frozen=True)
class Segmenter:
    """Turns raw lines into pieces with spaces between them; unknown pieces and control symbols become ``<unk>``."""

    model: Path

    def __call__(self, lines: list[str]) -> list[str]:
        processor, names = _cached_model(self.model.resolve(), self.model.stat().st_mtime_ns)
        return [" ".join(names[index] for index in line) for line in processor.encode(lines, num_threads=1)]


@lru_cache
def _cached_model(model: Path, changed: int) -> tuple[sentencepiece.SentencePieceProcessor, list[str]]:
    """The model, and its pieces by index. ``changed`` is the time of the file: a changed file is read again."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    pieces = ((index, processor.id_to_piece(index)) for index in range(len(processor)))
    # Control symbols such as </s>, which some models find in text, would end a sentence for fairseq.
    names = [
        _UNKNOWN if processor.is_unknown(index) or processor.is_control(index) else piece for index, piece in pieces
    ]
    return processor, names


def frequent_characters(texts: Iterable[Path], coverage: float) -> set[str]:
    """The most frequent characters of ``texts``, which together make up the share ``coverage`` of the text."""
    counts: Counter[str] = Counter()
    for text in texts:
        for line in read_lines(text):
            counts.update(line)
    total, seen, frequent = sum(counts.values()), 0, set()
    for char, count in counts.most_common():
        if seen >= coverage * total:
            break
        frequent.add(char)
        seen += count
    return frequent


def write_rules(known: Container[str], folder: Path) -> tuple[Path, Path]:
    """Write the normalization and the denormalization rules for a text with the characters ``known`` to ``folder``."""
    escaped = [(char, escape_character(char)) for char in NO_PIECE if char in known]
    escaped += [(char, escape_character(char)) for char in RESERVED]  # also unknown ones, which stand for nothing
    special = [(name, escape_character(name[0]) + name[1:]) for name in SPECIAL]
    _write_rules(folder / NORMALIZATION, [*escaped, *special, *_replacement_rules(known)])
    first = SPECIAL[0][0]
    _write_rules(
        folder / DENORMALIZATION,
        sorted((after, before) for before, after in [*escaped, (first, escape_character(first))]),
    )
    return folder / NORMALIZATION, folder / DENORMALIZATION


def _replacement_rules(known: Container[str]) -> Iterator[Rule]:
    """Rules for white space and for characters that are not ``known``."""
    for char in map(chr, range(sys.maxunicode + 1)):
        kind = unicodedata.category(char)
        if char in "\n\0 " or kind in ("Cs", "Cn", "Co"):
            continue
        if char in known:
            if char.isspace() and kind in CONTROLS:
                yield char, " "
            else:
                yield from _compositions(char, known)
        elif char.isspace():
            yield char, " "
        elif kind in _INVISIBLE:
            yield char, ""
        elif char != SPACE and (other := _equivalent(char, known)) is not None:
            yield char, other


def _compositions(char: str, known: Container[str]) -> Iterator[Rule]:
    """The rule for ``char`` written as several characters, a letter and its accent, if one of them is not ``known``."""
    parts = unicodedata.normalize("NFD", char)
    if parts != char and not all(part in known for part in parts):
        yield parts, char


def _equivalent(char: str, known: Container[str]) -> str | None:
    forms = (unicodedata.normalize(form, char) for form in _FORMS)
    return next((form for form in forms if all(part == " " or part in known for part in form)), None)


def _write_rules(path: Path, rules: Iterable[Rule]) -> None:
    """Code points in hexadecimal, as SentencePiece reads them."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for rule in rules:
            file.write("\t".join(" ".join(f"{ord(char):X}" for char in side) for side in rule) + "\n")

"""Moses' tokens by sacremoses, and byte-pair encoding of them by subword-nmt, learned on both languages together."""

import io
from collections import Counter
from collections.abc import Iterable
from contextlib import redirect_stderr
from functools import lru_cache
from pathlib import Path

import regex
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_luna.text_files import read_lines

# Control and format characters become spaces, as in Moses' remove-non-printing-char.perl.
_UNPRINTABLE = regex.compile(r"\p{C}")


def tokenise(language: str, how: dict[str, bool], lines: list[str]) -> list[str]:
    """Tokens between spaces, XML's special characters escaped; ``split_hyphens`` makes ``well @-@ known``."""
    normalizer, tokeniser = _tools(language)
    texts = (normalizer.normalize(line.lower() if how["lower"] else line) for line in lines)
    plain = (_UNPRINTABLE.sub(" ", text) for text in texts)
    return [tokeniser.tokenize(text, aggressive_dash_splits=how["split_hyphens"], return_str=True) for text in plain]


@lru_cache
def _tools(language: str) -> tuple[MosesPunctNormalizer, MosesTokenizer]:
    return MosesPunctNormalizer(language, perl_parity=True), MosesTokenizer(language)


def learn_merges(texts: Iterable[Path], merges: int, codes: Path) -> None:
    """Write at most ``merges`` merges to ``codes``; only the counts of the distinct words are kept in memory."""
    counts = Counter(word for text in texts for line in read_lines(text) for word in line.split(" ") if word)
    # subword-nmt breaks ties by the order of the words.
    words = (f"{word} {count}" for word, count in sorted(counts.items()))
    with codes.open("w", encoding="utf-8", newline="\n") as file, redirect_stderr(io.StringIO()):  # its progress bar
        learn_bpe(words, file, merges, is_dict=True)


def merge(codes: Path, known: Path | None, lines: list[str]) -> list[str]:
    """Pieces between spaces; ``@@`` ends every piece but the last of a word.

    Args:
        known: a file of pieces, a line each, into which alone words are cut; None: any.
    """
    # A carriage return inside a line would end it for fairseq-preprocess.
    return [_load(codes, known).segment(" ".join(line.split())) for line in lines]


@lru_cache
def _load(codes: Path, known: Path | None) -> BPE:
    with codes.open(encoding="utf-8") as file:
        return BPE(file, vocab=None if known is None else set(read_lines(known)))

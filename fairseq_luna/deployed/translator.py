"""Text to text with an exported model."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor

from ..piece_models import restricted
from ..search_options import check_numbers
from ..subwords import SPACE, joined, says_nothing
from ..usage_error import UnreadableText, UsageError
from .folder import PIECES, SOURCE_WORDS, TARGET_WORDS, settings_of, words_of
from .graphs import BOS, EOS, PAD, UNK, Graphs
from .search import beam_search


class Translation(NamedTuple):
    """A translation, and its log-probability divided by a power of its length."""

    text: str
    score: float


class Translator:
    """Translates as fairseq-generate does with the same model.

    Args:
        folder: made by ``fairseq-luna export``.
        threads: CPU threads.

    Raises:
        UsageError: ``folder`` is of another version, or a file is missing or has changed.
    """

    def __init__(self, folder: str | os.PathLike[str], *, threads: int = 1) -> None:
        check_numbers({"threads": threads})
        folder = Path(folder)
        settings = settings_of(folder)
        self.longest_source: int = settings.starts[-1]["longest"]
        self.longest_target = settings.longest_target
        self.numbers = {word: number for number, word in enumerate(words_of(folder / SOURCE_WORDS))}
        self.words = words_of(folder / TARGET_WORDS)
        self.graphs = Graphs(folder, settings.starts, words=len(self.words), threads=threads)
        self.reads_pieces = settings.mark == SPACE
        self.pieces: SentencePieceProcessor | None = None
        if settings.pieces:  # exported models of an earlier version may have pieces that their dictionary lacks
            self.pieces = restricted(SentencePieceProcessor(model_file=str(folder / PIECES)), self.numbers)

    def translate(self, text: str | Sequence[str], **options: Any) -> str | list[str]:
        """Translate a text, or several at once; options are those of :meth:`translations`."""
        if isinstance(text, str):
            return next(self.translations([text], **options))[0].text
        return [found[0].text for found in self.translations(text, **options)]

    def translations(
        self,
        texts: Iterable[str],
        *,
        beam: int = 5,
        lenpen: float = 1.0,
        max_len_a: float = 0.0,
        max_len_b: int = 200,
        min_len: int = 1,
        max_tokens: int = 1024,
    ) -> Iterator[list[Translation]]:
        """The translations of each text that the beam search finds, the best first; "" for text without pieces.

        Args:
            texts: lines of text; without a SentencePiece model, of pieces with spaces between them.
            beam, lenpen, max_len_a, max_len_b, min_len: as in fairseq-generate.
            max_tokens: pieces in a batch, padding included. Texts of similar length are translated together.

        Raises:
            UnreadableText: a text is longer than the model reads, or not in pieces and no SentencePiece model is there.
            UsageError: a number is not finite, ``beam`` is larger than the vocabulary allows, or ``min_len`` than the
                largest length.
        """
        if not 1 <= beam < len(self.words) // 2:
            raise UsageError(f"beam {beam}: must be from 1 to {len(self.words) // 2 - 1}")
        lengths = {"max_len_a": max_len_a, "max_len_b": max_len_b, "min_len": min_len}
        check_numbers({"beam": beam, "lenpen": lenpen, "max_tokens": max_tokens, **lengths})
        sources = [self.encoded(text) for text in texts]
        found = {i: [Translation("", 0.0)] for i, source in enumerate(sources) if not source}
        for batch in batches(sources, max_tokens):
            padded = np.full((len(batch), max(len(sources[i]) for i in batch)), PAD, dtype=np.int64)
            for row, i in enumerate(batch):
                padded[row, : len(sources[i])] = sources[i]
            most = min(max_len_a * padded.shape[1] + max_len_b, self.longest_target - 1)
            if most < min_len:
                raise UsageError(f"max_len_a, max_len_b: allow {most:g} words here; min_len asks for {min_len}")
            limits = {"longest": int(most), "shortest": min_len}
            try:
                hypotheses = beam_search(self.graphs, padded, beam=beam, lenpen=lenpen, **limits)
            except OverflowError as error:
                raise UsageError(f"lenpen {lenpen}: too large: {error}") from error
            for i, some in zip(batch, hypotheses, strict=True):
                found[i] = [Translation(self.decoded(words), score) for words, score in some]
        return (found[i] for i in range(len(sources)))

    def encoded(self, text: str) -> list[int]:
        """Numbers of the pieces of ``text``, and the end mark; nothing for text without pieces."""
        if self.pieces is not None and not says_nothing(text):
            text = " ".join(self.pieces.encode(text, out_type=str))
        if says_nothing(text):
            return []
        if self.reads_pieces and SPACE not in text:
            raise UnreadableText(f"{text[:50]} ...: has no pieces of SentencePiece; export the model with its --pieces")
        pieces = text.split()  # as fairseq reads a line: white space inside a piece cuts it, alone it is left out
        longest = self.longest_source - 1
        if len(pieces) > longest:
            begin = " ".join(pieces[:5])
            raise UnreadableText(
                f"a text has {len(pieces)} pieces, the model reads at most {longest}; cut it: {begin} ..."
            )
        return [*(self.numbers.get(piece, UNK) for piece in pieces), EOS]

    def unknown_tokens(self, text: str) -> tuple[int, int]:
        """How many tokens of ``text`` the dictionary lacks, and how many there are, without the end mark."""
        tokens = self.encoded(text)[:-1]
        return tokens.count(UNK), len(tokens)

    def decoded(self, words: Sequence[int]) -> str:
        pieces = [self.words[number] for number in words if number not in (BOS, EOS)]
        return " ".join(pieces) if self.pieces is None else joined(" ".join(pieces))


def batches(sources: Sequence[Sequence[int]], max_tokens: int) -> Iterator[list[int]]:
    """The places of the sources, without empty ones, similar lengths together, at most ``max_tokens`` with padding."""
    batch: list[int] = []
    for i in sorted((i for i, source in enumerate(sources) if source), key=lambda i: len(sources[i])):
        if batch and (len(batch) + 1) * len(sources[i]) > max_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch

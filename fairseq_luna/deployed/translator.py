"""Text to text with an exported model."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor

from ..usage_error import UsageError
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
        folder: made by ``scripts/export_translator.py``.
        threads: CPU threads.

    Raises:
        UsageError: ``folder`` is of another version, or a file is missing or damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], *, threads: int = 1) -> None:
        folder = Path(folder)
        settings = settings_of(folder)
        self.longest_source: int = settings["starts"][-1]["longest"]
        self.longest_target: int = settings["longest_target"]
        self.numbers = {word: number for number, word in enumerate(words_of(folder / SOURCE_WORDS))}
        self.words = words_of(folder / TARGET_WORDS)
        self.graphs = Graphs(folder, settings["starts"], words=len(self.words), threads=threads)
        self.pieces = None
        if settings["pieces"]:
            self.pieces = pieces_in(folder / PIECES)

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
        """The translations of each text that the beam search finds, the best first.

        Args:
            texts: lines of text; without a SentencePiece model, of pieces with spaces between them.
            beam, lenpen, max_len_a, max_len_b, min_len: as in fairseq-generate.
            max_tokens: pieces in a batch, padding included. Texts of similar length are translated together.

        Raises:
            UsageError: a text is longer than the model reads, ``beam`` is larger than its vocabulary allows, or
                ``min_len`` than the largest length.
        """
        if not 1 <= beam < len(self.words) // 2:
            raise UsageError(f"beam {beam}: must be from 1 to {len(self.words) // 2 - 1}")
        sources = [self.encoded(text) for text in texts]
        found: dict[int, list[Translation]] = {}
        for batch in batches(sources, max_tokens):
            padded = np.full((len(batch), max(len(sources[i]) for i in batch)), PAD, dtype=np.int64)
            for row, i in enumerate(batch):
                padded[row, : len(sources[i])] = sources[i]
            longest = min(int(max_len_a * padded.shape[1] + max_len_b), self.longest_target - 1)
            if longest < min_len:
                raise UsageError(f"max_len_a, max_len_b: allow {longest} words here; min_len asks for {min_len}")
            hypotheses = beam_search(self.graphs, padded, beam=beam, lenpen=lenpen, longest=longest, shortest=min_len)
            for i, some in zip(batch, hypotheses, strict=True):
                found[i] = [Translation(self.decoded(words), score) for words, score in some]
        return (found[i] for i in range(len(sources)))

    def encoded(self, text: str) -> list[int]:
        """Numbers of the pieces of ``text``, and the end mark."""
        pieces = text.split() if self.pieces is None else self.pieces.encode(text, out_type=str)
        longest = self.longest_source - 1
        if len(pieces) > longest:
            begin = " ".join(pieces[:5])
            raise UsageError(f"a text has {len(pieces)} pieces, the model reads at most {longest}; cut it: {begin} ...")
        return [*(self.numbers.get(piece, UNK) for piece in pieces), EOS]

    def decoded(self, words: Sequence[int]) -> str:
        pieces = [self.words[number] for number in words if number not in (BOS, EOS)]
        return " ".join(pieces) if self.pieces is None else "".join(pieces).replace("▁", " ").strip()


def batches(sources: Sequence[Sequence[int]], max_tokens: int) -> Iterator[list[int]]:
    """The places of the sources, similar lengths together, at most ``max_tokens`` with padding."""
    batch: list[int] = []
    for i in sorted(range(len(sources)), key=lambda i: len(sources[i])):
        if batch and (len(batch) + 1) * len(sources[i]) > max_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def pieces_in(file: Path) -> SentencePieceProcessor:
    if not file.is_file():
        raise UsageError(f"{file}: there is no such SentencePiece model; export the model again")
    try:
        return SentencePieceProcessor(model_file=str(file))
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{file}: is no SentencePiece model; export the model again") from error

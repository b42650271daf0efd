"""Translation of texts with an exported model."""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import SentencePieceProcessor

from ..option_names import checks_names
from ..piece_models import restrict_to_words
from ..search_options import check_numbers, check_search, one_or_several
from ..subwords import SPACE, escapes_characters, is_blank, join_pieces
from ..translation import EMPTY, Translation
from ..usage_error import UnreadableText, UsageError
from .folder import PIECES, SOURCE_WORDS, TARGET_WORDS, read_settings, read_symbols
from .graphs import BOS, EOS, PAD, UNK, Graphs
from .onnx_beam_search import beam_search

MAX_TOKENS = 1024  # source tokens per batch, padding included
_TRAINED = "exported models do not support it; use fairseq_luna.load"
_CPU = "an exported model computes on a CPU, in fp32 or int8; use fairseq_luna.load"
INSTEAD = {
    **dict.fromkeys(
        ("alignments", "replace_unk", "sampling", "sampling_topk", "sampling_topp", "temperature", "unkpen"), _TRAINED
    ),
    **dict.fromkeys(("diverse_beam_groups", "diverse_beam_strength", "diversity_rate", "match_source_len"), _TRAINED),
    **dict.fromkeys(("no_repeat_ngram_size", "prefix_allowed_tokens_fn", "unnormalized"), _TRAINED),
    "seed": "exported models do not sample",
    **dict.fromkeys(("fp16", "bf16", "device"), _CPU),
}


class Translator:
    """Translator that gives the translations of fairseq-generate with the same model.

    Args:
        folder: folder that ``fairseq-luna export`` made.
        threads: number of CPU threads.

    Raises:
        UsageError: ``folder`` has another format, or a file is missing or has changed.
    """

    def __init__(self, folder: str | os.PathLike[str], *, threads: int = 1) -> None:
        check_numbers({"threads": threads})
        folder = Path(folder)
        settings = read_settings(folder)
        self.longest_source: int = settings.starts[-1]["longest"]
        self.longest_target = settings.longest_target
        self.numbers = {symbol: number for number, symbol in enumerate(read_symbols(folder / SOURCE_WORDS))}
        self.symbols = read_symbols(folder / TARGET_WORDS)
        self.graphs = Graphs(folder, settings.starts, vocabulary_size=len(self.symbols), threads=threads)
        self.reads_pieces = settings.mark == SPACE
        self.pieces: SentencePieceProcessor | None = None
        if settings.pieces:  # exported models of an earlier version may have pieces that their dictionary lacks
            self.pieces = restrict_to_words(SentencePieceProcessor(model_file=str(folder / PIECES)), self.numbers)

    @checks_names(INSTEAD)
    def translate(
        self,
        text: str | Iterable[str],
        beam: int = 5,
        *,
        nbest: int | None = None,
        scores: bool = False,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        lenpen: float = 1.0,
        max_len_a: float = 0.0,
        max_len_b: int = 200,
        min_len: int = 1,
    ) -> Any:
        """Translate a text, or several texts.

        Args:
            text: a text, or any iterable of texts; see :meth:`translations` for these and the other options.
            nbest: number of translations to return for each text, the best first; at most ``beam``.
            scores: return a :class:`~fairseq_luna.translation.Translation` with its score in place of a text.

        Returns:
            A text for a text, a list for several. With ``nbest`` each text's result is a list of translations.

        Raises:
            TypeError: there is no such option, or a text is not a str.
            UsageError: as :meth:`translations`.
        """
        lengths: dict[str, Any] = {"max_len_a": max_len_a, "max_len_b": max_len_b, "min_len": min_len}
        ranked_translations = self.translations(
            one_or_several(text),
            beam=beam,
            nbest=nbest,
            batch_size=batch_size,
            max_tokens=max_tokens,
            lenpen=lenpen,
            **lengths,
        )
        results: list[Any] = [ranked if scores else [each.text for each in ranked] for ranked in ranked_translations]
        if nbest is None:
            results = [best for best, *_ in results]
        return results[0] if isinstance(text, str) else results

    @checks_names(INSTEAD)
    def translations(
        self,
        texts: Iterable[str],
        *,
        beam: int = 5,
        nbest: int | None = None,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        lenpen: float = 1.0,
        max_len_a: float = 0.0,
        max_len_b: int = 200,
        min_len: int = 1,
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each text, the best first; "" for a blank text.

        Args:
            texts: lines of text; without a SentencePiece model, lines of pieces with spaces between them.
            beam, lenpen, max_len_a, max_len_b, min_len: as in fairseq-generate.
            nbest: number of translations for each text; None: ``beam``.
            batch_size, max_tokens: maximum number of texts, and of source tokens with padding, per batch; with neither,
                1,024 tokens. Texts of similar length are translated together.

        Raises:
            TypeError: there is no such option, or a text is not a str.
            UnreadableText: a text is longer than the model reads, or not in pieces and no SentencePiece model is there.
            UsageError: a number is not finite, ``beam`` is too large for the vocabulary, or ``min_len`` is above the
                maximum length.
        """
        if not 1 <= beam < len(self.symbols) // 2:
            raise UsageError(f"beam {beam}: must be from 1 to {len(self.symbols) // 2 - 1}")
        lengths = {"max_len_a": max_len_a, "max_len_b": max_len_b, "min_len": min_len}
        sizes = {"batch_size": batch_size, "max_tokens": max_tokens}
        check_numbers({"beam": beam, "nbest": nbest, "lenpen": lenpen, **sizes, **lengths})
        check_search({"beam": beam, "nbest": nbest}, vocabulary_size=len(self.symbols))
        texts = one_or_several(texts)
        sources = [self.encode(text) for text in texts]
        hypotheses_by_index = {i: [EMPTY] for i, source in enumerate(sources) if not source}
        for batch in batches(sources, max_tokens or (math.inf if batch_size else MAX_TOKENS), batch_size or math.inf):
            padded = np.full((len(batch), max(len(sources[i]) for i in batch)), PAD, dtype=np.int64)
            for row, i in enumerate(batch):
                padded[row, : len(sources[i])] = sources[i]
            most = min(max_len_a * padded.shape[1] + max_len_b, self.longest_target - 1)
            if most < min_len:
                limit_description = f"max_len_a {max_len_a:g}, max_len_b {max_len_b}"
                raise UsageError(f"{limit_description}: allow {most:g} tokens here; min_len asks for {min_len}")
            limits = {"longest": int(most), "shortest": min_len}
            try:
                hypotheses = beam_search(self.graphs, padded, beam=beam, lenpen=lenpen, **limits)
            except OverflowError as error:
                raise UsageError(f"lenpen {lenpen}: too large: {error}") from error
            for i, some in zip(batch, hypotheses, strict=True):
                hypotheses_by_index[i] = [Translation(self.decode(tokens), score) for tokens, score in some]
        return (hypotheses_by_index[i][:nbest] for i in range(len(sources)))

    def encode(self, text: str) -> list[int]:
        """Indices of the pieces of ``text`` and the end-of-sentence symbol; empty for a blank text."""
        if self.pieces is not None and not is_blank(text):
            text = " ".join(self.pieces.encode(text, out_type=str))
        if is_blank(text):
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
        """Number of unknown tokens of ``text``, and of all tokens, without the end-of-sentence symbol."""
        tokens = self.encode(text)[:-1]
        return tokens.count(UNK), len(tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        pieces = [self.symbols[number] for number in tokens if number not in (BOS, EOS)]
        if self.pieces is None:
            return " ".join(pieces)
        return join_pieces(" ".join(pieces), escaped=escapes_characters(self.pieces))


def batches(sources: Sequence[Sequence[int]], max_tokens: float, batch_size: float) -> Iterator[list[int]]:
    """Yield batches of indices of the sources that are not empty, similar lengths together.

    Args:
        max_tokens, batch_size: maximum number of tokens with padding, and of sources, per batch.
    """
    batch: list[int] = []
    for i in sorted((i for i, source in enumerate(sources) if source), key=lambda i: len(sources[i])):
        if batch and ((len(batch) + 1) * len(sources[i]) > max_tokens or len(batch) == batch_size):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch

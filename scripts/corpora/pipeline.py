"""The published corpora's way from plain text to a data-bin: with SentencePiece, or Moses' tokens and subword-nmt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.catalogue import LANGUAGES
from fairseq_luna.commands.preparing import pipeline
from fairseq_luna.commands.preparing.cleaning import Rules
from fairseq_luna.commands.preparing.parallel import transform
from fairseq_luna.commands.preparing.pipeline import SPLITS
from fairseq_luna.commands.steps import once

try:
    from corpora.merges import Merge, learn_merges
    from corpora.moses import Tokenise
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: pip install -c constraints.txt --no-build-isolation -e '.[data]'") from error

SUBWORD_NMT = "subword-nmt"
SENTENCEPIECE = "sentencepiece"


@dataclass(frozen=True)
class Recipe:
    """How text is turned into pieces.

    Args:
        bpe: ``subword-nmt`` for tokens, or ``sentencepiece`` for raw text.
        size: number of merges, or of pieces.
        rules: which training pairs are dropped.
        tokenised: the text is tokenised already.
        lower: lower-case before tokenising.
        split_hyphens: see :class:`~corpora.moses.Tokenise`.
        coverage: see :func:`~fairseq_luna.commands.preparing.pieces.learn_pieces`.
    """

    bpe: str
    size: int
    rules: Rules
    tokenised: bool = False
    lower: bool = False
    split_hyphens: bool = False
    coverage: float = 1.0


def prepare(
    out: Path, gather: Callable[[Path], None], recipe: Recipe, workers: int, languages: Sequence[str] = LANGUAGES
) -> None:
    """See :func:`fairseq_luna.commands.preparing.pipeline.prepare`; ``out/codes`` takes the place of a joint.model."""
    if recipe.bpe == SENTENCEPIECE:
        common = {"rules": recipe.rules, "workers": workers, "languages": languages}
        pipeline.prepare(out, gather, vocabulary=recipe.size, coverage=recipe.coverage, **common)
        return
    raw = text = out / "work" / "raw"
    once("plain text", raw, gather)
    if not recipe.tokenised:
        text = out / "work" / "tokens"
        once("tokens", text, lambda target: _tokenise(raw, target, recipe, workers, languages))
    codes = out / "codes"
    training = [text / f"train.{language}" for language in languages]
    what = f"{recipe.size} merges"
    once(what, codes, lambda target: learn_merges(training, target, merges=recipe.size, workers=workers))
    pipeline.cut_and_binarise(out, text, Merge(codes), recipe.rules, workers, languages)


def _tokenise(raw: Path, target: Path, recipe: Recipe, workers: int, languages: Sequence[str]) -> None:
    target.mkdir()
    for language in languages:
        tokenise = Tokenise(language, recipe.lower, recipe.split_hyphens)
        for split in SPLITS:
            name = f"{split}.{language}"
            transform(tokenise, raw / name, target / name, what=f"tokenising {name}", workers=workers)

"""From plain text to a data-bin: tokens, pieces, cleaning, fairseq-preprocess. Finished steps are reused."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from corpora.catalogue import LANGUAGES
from corpora.cleaning import Rules, kept
from corpora.parallel import shown, transform
from corpora.pieces import Cut, learn_pieces
from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.steps import complete, once, run_fairseq
from fairseq_luna.commands.text_files import count_lines, read_pairs

try:
    from corpora.merges import Merge, learn_merges
    from corpora.moses import Tokenise
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: pip install -c constraints.txt --no-build-isolation -e '.[data]'") from error

SPLITS = ("train", "valid", "test")
SUBWORD_NMT = "subword-nmt"
SENTENCEPIECE = "sentencepiece"
DROPPED = "dropped.json"


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
        coverage: see :func:`~corpora.pieces.learn_pieces`.
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
    """Make ``out/bin``, ``out/reference`` and the model of the pieces; intermediate files stay in ``out/work``.

    Args:
        gather: writes ``{train,valid,test}.<language>`` to a folder.
        languages: source and target.
    """
    work = out / "work"
    raw = work / "raw"
    once("plain text", raw, gather)
    text = raw
    if recipe.bpe == SUBWORD_NMT:
        if not recipe.tokenised:
            text = work / "tokens"
            once("tokens", text, lambda target: _tokenise(raw, target, recipe, workers, languages))
        codes = out / "codes"
        training = [text / f"train.{language}" for language in languages]
        once(
            f"{recipe.size} merges",
            codes,
            lambda target: learn_merges(training, target, merges=recipe.size, workers=workers),
        )
        cut: Merge | Cut = Merge(codes)
    else:
        training = [raw / f"train.{language}" for language in languages]
        cut = Cut(sentencepiece_model(out, training, recipe.size, coverage=recipe.coverage))
    pieces, clean = work / "pieces", work / "clean"
    once("pieces", pieces, lambda target: cut_splits(text, target, cut, workers, languages))
    once("cleaned training text", clean, lambda target: _clean(pieces, target, recipe.rules, languages))
    once("references", out / "reference", lambda target: _keep_references(raw, text, target, languages))
    data = partial(binarise, clean, pieces, workers=workers, log=work / "preprocess.output", languages=languages)
    once("data", out / "bin", data)


def _tokenise(raw: Path, target: Path, recipe: Recipe, workers: int, languages: Sequence[str]) -> None:
    target.mkdir()
    for language in languages:
        tokenise = Tokenise(language, recipe.lower, recipe.split_hyphens)
        for split in SPLITS:
            name = f"{split}.{language}"
            transform(tokenise, raw / name, target / name, what=f"tokenising {name}", workers=workers)


def sentencepiece_model(
    out: Path, training: Sequence[Path], size: int, *, coverage: float = 1.0, symbols: Sequence[str] = ()
) -> Path:
    """Make ``out/joint.model`` and ``joint.vocab``; see :func:`~corpora.pieces.learn_pieces`."""
    learned, model = out / "work" / "sentencepiece", out / "joint.model"
    what = f"SentencePiece model of {size} pieces"
    if model.exists():
        print(f"{what}: reusing {model}", flush=True)
        return model
    once(
        what,
        learned,
        lambda target: learn_pieces(training, target, vocabulary=size, coverage=coverage, symbols=symbols),
    )
    shutil.copyfile(learned / "joint.vocab", out / "joint.vocab")
    with complete(model) as copied:
        shutil.copyfile(learned / "joint.model", copied)
    return model


def cut_splits(
    text: Path,
    target: Path,
    cut: Merge | Cut,
    workers: int,
    languages: Sequence[str] = LANGUAGES,
    splits: Sequence[str] = SPLITS,
) -> None:
    """Write the pieces of every split, one line for each line of ``text``."""
    target.mkdir()
    for split in splits:
        for language in languages:
            name = f"{split}.{language}"
            transform(cut, text / name, target / name, what=f"cutting {name}", workers=workers)


def _clean(pieces: Path, target: Path, rules: Rules, languages: Sequence[str]) -> None:
    """Only the training text: every sentence of valid and test is kept.

    Raises:
        CommandError: no pair is left.
    """
    target.mkdir()
    dropped: Counter[str] = Counter()
    source, of = (f"train.{language}" for language in languages)
    pairs = read_pairs(pieces / source, pieces / of)
    with (
        (target / source).open("w", encoding="utf-8", newline="\n") as ours,
        (target / of).open("w", encoding="utf-8", newline="\n") as theirs,
    ):
        for first, second in kept(shown(pairs, "cleaning", count_lines(pieces / source)), rules, dropped):
            ours.write(first + "\n")
            theirs.write(second + "\n")
    if not count_lines(target / source):
        listed = ", ".join(f"{rule}: {count:,}" for rule, count in dropped.items())
        raise CommandError(f"no training pair is left; dropped are {listed}")
    (target / DROPPED).write_text(json.dumps(dropped, indent=2) + "\n", encoding="utf-8")


def _keep_references(raw: Path, text: Path, target: Path, languages: Sequence[str]) -> None:
    """Raw valid and test for scoring, and the tokenised test if there are tokens."""
    target.mkdir()
    for split in ("valid", "test"):
        for language in languages:
            shutil.copyfile(raw / f"{split}.{language}", target / f"{split}.{language}")
    if text != raw:
        shutil.copyfile(text / f"test.{languages[1]}", target / f"test.tok.{languages[1]}")


def binarise(
    training: Path,
    pieces: Path,
    target: Path,
    workers: int,
    log: Path,
    *,
    languages: Sequence[str] = LANGUAGES,
    dictionary: Path | None = None,
) -> None:
    """fairseq-preprocess.

    Args:
        training: folder of the training text.
        pieces: folder of valid and test.
        languages: source and target.
        dictionary: of both languages, or None for one made from the training text.
    """
    source, of = languages
    arguments = ["--source-lang", source, "--target-lang", of, "--joined-dictionary", "--workers", str(workers)]
    arguments += ["--srcdict", str(dictionary)] if dictionary else []
    arguments += ["--trainpref", str(training / "train"), "--validpref", str(pieces / "valid")]
    arguments += ["--testpref", str(pieces / "test"), "--destdir", str(target)]
    run_fairseq("preprocess", arguments, log)

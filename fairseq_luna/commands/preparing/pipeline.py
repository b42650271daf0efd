"""From plain text to a data-bin: pieces, cleaning, fairseq-preprocess. Finished steps are reused."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...usage_error import UsageError
from ..progress import shown, working
from ..steps import complete, once, run_fairseq
from ..text_files import count_lines, read_pairs
from .cleaning import Rules, kept
from .gathering import SPLITS, write
from .parallel import transform
from .pieces import Cut, learn_pieces

DROPPED = "dropped.json"
Cutter = Callable[[list[str]], list[str]]  # of lines, in another process too


def prepare(
    out: Path,
    gather: Callable[[Path], object],
    *,
    vocabulary: int,
    rules: Rules,
    workers: int,
    languages: Sequence[str],
    coverage: float = 1.0,
) -> None:
    """Make ``out/bin``, ``out/reference`` and ``out/joint.model``; intermediate files stay in ``out/work``.

    Args:
        gather: writes ``{train,valid,test}.<language>`` to a folder.
        vocabulary: number of pieces.
        rules: which training pairs are dropped.
        languages: source and target.
        coverage: see :func:`~.pieces.learn_pieces`.
    """
    raw = out / "work" / "raw"
    once("plain text", raw, gather)
    training = [raw / f"train.{language}" for language in languages]
    cut = Cut(sentencepiece_model(out, training, vocabulary, coverage=coverage))
    cut_and_binarise(out, raw, cut, rules, workers, languages)


def cut_and_binarise(out: Path, text: Path, cut: Cutter, rules: Rules, workers: int, languages: Sequence[str]) -> None:
    """The steps of :func:`prepare` after the pieces are learned; ``text`` is what ``cut`` reads."""
    work = out / "work"
    pieces, clean = work / "pieces", work / "clean"
    once("pieces", pieces, lambda target: cut_splits(text, target, cut, workers, languages))
    once("cleaned training text", clean, lambda target: _clean(pieces, target, rules, languages))
    once("references", out / "reference", lambda target: _keep_references(work / "raw", text, target, languages))
    data = partial(binarise, clean, pieces, workers=workers, log=work / "preprocess.output", languages=languages)
    once("data", out / "bin", data)


def summary(out: Path, language: str) -> tuple[int, str] | None:
    """How many training pairs there are and were dropped, and both in words; None if ``out/work`` was deleted."""
    clean = out / "work" / "clean"
    if not (clean / DROPPED).exists():
        return None
    dropped = json.loads((clean / DROPPED).read_text(encoding="utf-8"))
    listed = "".join(f"; {rule}: {count:,}" for rule, count in dropped.items())
    pairs = count_lines(clean / f"train.{language}")
    return pairs, f"training pairs: {pairs:,} kept, {sum(dropped.values()):,} dropped{listed}"


def sentencepiece_model(
    out: Path, training: Sequence[Path], size: int, *, coverage: float = 1.0, symbols: Sequence[str] = ()
) -> Path:
    """Make ``out/joint.model`` and ``joint.vocab``; see :func:`~.pieces.learn_pieces`."""
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


def cut_splits(text: Path, target: Path, cut: Cutter, workers: int, languages: Sequence[str]) -> None:
    """Write the pieces of every split, one line for each line of ``text``."""
    target.mkdir()
    for split in SPLITS:
        for language in languages:
            name = f"{split}.{language}"
            transform(cut, text / name, target / name, what=f"cutting {name}", workers=workers)


def _clean(pieces: Path, target: Path, rules: Rules, languages: Sequence[str]) -> None:
    """Only the training text: every sentence of valid and test is kept.

    Raises:
        UsageError: no pair is left.
    """
    target.mkdir()
    dropped: Counter[str] = Counter()
    source, of = (pieces / f"train.{language}" for language in languages)
    pairs = shown(read_pairs(source, of), "cleaning", count_lines(source))
    if not write(kept(pairs, rules, dropped), [("train", None)], target, languages):
        listed = ", ".join(f"{rule}: {count:,}" for rule, count in dropped.items())
        raise UsageError(f"no training pair is left; dropped are {listed}")
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
    languages: Sequence[str],
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
    arguments += [f"--srcdict={dictionary}"] if dictionary else []  # a path may begin with -
    arguments += [f"--trainpref={training / 'train'}", f"--validpref={pieces / 'valid'}"]
    arguments += [f"--testpref={pieces / 'test'}", f"--destdir={target}"]
    with working("fairseq-preprocess"):
        run_fairseq("preprocess", arguments, log)

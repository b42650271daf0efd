"""Steps from plain text to the data of fairseq-train. Finished steps are reused."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...files import atomic_write, make_unless_present
from ...progress import progress_bar, show_elapsed_time
from ...text_files import count_lines, read_pairs
from ...usage_error import UsageError
from ..shell_commands import run_fairseq
from .cleaning import HELD_OUT, LengthLimits, Overlap, Pair, clean_pairs, lines_of_overlap
from .corpus import SPLITS, write_splits
from .parallel import transform
from .piece_dictionaries import DICTIONARY, UnknownTokenCount, count_unknown, read_dictionary, write_with_every_piece
from .sentencepiece_model import Segmenter, learn_pieces, write_restricted

DROPPED, OVERLAP, UNKNOWN = "dropped.json", "json", "unknown.json"
MODEL = "joint.model"
Cutter = Callable[[list[str]], list[str]]  # of lines, in another process too
Cutters = Mapping[str, Cutter]  # by language


def prepare(
    out: Path,
    gather: Callable[[Path], object],
    *,
    vocabulary: int,
    rules: LengthLimits,
    workers: int,
    languages: Sequence[str],
    coverage: float = 1.0,
    pieces: Path | None = None,
    dictionaries: Sequence[Path] = (),
    leave_out: str | None = None,
) -> None:
    """Make ``out/bin``, ``out/reference`` and ``out/joint.model``; intermediate files stay in ``out/work``.

    Args:
        gather: writes ``{train,valid,test}.<language>`` to a folder.
        vocabulary: number of pieces.
        rules: limits of training pairs.
        languages: source and target.
        coverage: see :func:`~.sentencepiece_model.learn_pieces`.
        pieces: an existing SentencePiece model, in place of one that is learned.
        dictionaries: of ``pieces``, one for both languages or source and target, in place of new ones.
        leave_out: training pairs to leave out because they are held out, see :class:`~.cleaning.Overlap`.
    """
    work = out / "work"
    raw = work / "raw"
    make_unless_present("plain text", raw, gather)
    training = [raw / f"train.{language}" for language in languages]
    model = pieces or learned_model(out, training, vocabulary, coverage=coverage)
    words = dict(zip(languages, (dictionaries[0], dictionaries[-1]), strict=True)) if dictionaries else {}
    cutters: Cutters = {language: Segmenter(model) for language in languages}
    if words:
        restricted = {language: work / "models" / f"{language}.model" for language in languages}
        make_unless_present("pieces of the dictionaries", work / "models", partial(restrict, model, words))
        cutters = {language: Segmenter(path) for language, path in restricted.items()}
    cut_and_clean(out, raw, cutters, rules, workers, languages, leave_out)
    if words:
        keep_model(restricted[languages[0]], out)
    else:
        dictionary = dictionary_of_pieces(out, model, [work / "clean" / f"train.{name}" for name in languages], workers)
        words = dict.fromkeys(languages, dictionary)
        cutters = {language: Segmenter(out / MODEL) for language in languages}
    cut_held_out_and_binarize(out, raw, cutters, workers, languages, words)


def restrict(model: Path, words: Mapping[str, Path], target: Path) -> None:
    """Write ``model`` for each language, restricted to the pieces in the dictionary of the language."""
    target.mkdir()
    for language, file in words.items():
        write_restricted(model, read_dictionary(file).indices, target / f"{language}.model")


def cut_and_clean(
    out: Path,
    text: Path,
    cutters: Cutters,
    rules: LengthLimits,
    workers: int,
    languages: Sequence[str],
    leave_out: str | None = None,
) -> None:
    """Make ``out/work/clean``, the training text in pieces, from the folder ``text``."""
    work = out / "work"
    make_unless_present(
        "pieces", work / "pieces", lambda target: cut_splits(text, target, cutters, workers, ("train",))
    )
    clean = partial(
        _write_clean_training_text, work / "raw", work / "pieces", rules=rules, languages=languages, leave_out=leave_out
    )
    make_unless_present("cleaned training text", work / "clean", clean)


def cut_held_out_and_binarize(
    out: Path,
    text: Path,
    cutters: Cutters,
    workers: int,
    languages: Sequence[str],
    words: Mapping[str, Path] | None = None,
) -> None:
    """The steps of :func:`prepare` after :func:`cut_and_clean`; ``words``: existing dictionaries, if any."""
    work = out / "work"
    held_out, clean = work / "held_out", work / "clean"
    make_unless_present(
        "pieces of valid and test",
        held_out,
        lambda target: cut_splits(text, target, cutters, workers, HELD_OUT),
    )
    make_unless_present(
        "references", out / "reference", lambda target: _keep_references(work / "raw", text, target, languages)
    )
    data = partial(binarize, clean, held_out, workers=workers, log=work / "preprocess.output", languages=languages)
    make_unless_present("data", out / "bin", partial(data, words=words))
    texts = {"train": clean, **dict.fromkeys(HELD_OUT, held_out)}
    count = partial(_count_unknown, texts, out / "bin", languages=languages, workers=workers)
    make_unless_present("share of unknown tokens", work / UNKNOWN, count)


def _count_unknown(
    texts: Mapping[str, Path], data: Path, target: Path, *, languages: Sequence[str], workers: int
) -> None:
    """Write the number of unknown tokens and of all tokens to ``target``, for each split and language."""
    unknown = {}
    for language in languages:
        words = read_dictionary(data / f"dict.{language}.txt")
        for split, folder in texts.items():
            name = f"{split}.{language}"
            unknown[name] = count_unknown(folder / name, words, workers)
    target.write_text(json.dumps(unknown, indent=2) + "\n", encoding="utf-8")


def data_summary(out: Path, language: str, advice: str | None = None) -> tuple[int, str] | None:
    """Number of training pairs, and a description of the data; None if ``out/work`` was deleted.

    Args:
        advice: line to add if held-out pairs are in the training text too.
    """
    work = out / "work"
    clean = work / "clean"
    if not (clean / DROPPED).exists():
        return None
    dropped = _read_json(clean / DROPPED)
    listed = "".join(f"; {rule}: {count:,}" for rule, count in dropped.items())
    pairs = count_lines(clean / f"train.{language}")
    lines = [f"training pairs: {pairs:,} kept, {sum(dropped.values()):,} dropped{listed}"]
    if repeated := lines_of_overlap(_read_json(clean / OVERLAP)):
        lines += [*repeated, *([advice] if advice else [])]
    for name, counts in _read_json(work / UNKNOWN).items():
        if (unknown := UnknownTokenCount(*counts)).tokens:
            lines.append(f"unknown tokens in {name}: {unknown}")
    return pairs, "\n".join(lines)


def _read_json(path: Path) -> dict[str, Any]:
    """Read a file of JSON; empty if there is none, because an earlier version of this package made the folder."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def learned_model(
    out: Path, training: Sequence[Path], size: int, *, coverage: float = 1.0, symbols: Sequence[str] = ()
) -> Path:
    """Learn a SentencePiece model in ``out/work``; see :func:`~.sentencepiece_model.learn_pieces`."""
    learned, description = out / "work" / "sentencepiece", f"SentencePiece model of {size} pieces"
    if not learned.exists() and (out / MODEL).exists():
        print(f"{description}: reusing {out / MODEL}", flush=True)
        return out / MODEL
    make_unless_present(
        description,
        learned,
        lambda target: learn_pieces(training, target, vocabulary=size, coverage=coverage, symbols=symbols),
    )
    shutil.copyfile(learned / "joint.vocab", out / "joint.vocab")
    return learned / MODEL


def dictionary_of_pieces(
    out: Path, model: Path, training: Sequence[Path], workers: int, symbols: Sequence[str] = ()
) -> Path:
    """Make ``out/joint.model``, and return the file of a dictionary of its pieces.

    Args:
        model: SentencePiece model that segmented the files ``training``.
        symbols: strings that remain pieces, wherever they occur.
    """
    dictionary_folder = out / "work" / "dictionary"
    make_unless_present(
        "dictionary",
        dictionary_folder,
        lambda target: write_with_every_piece(model, training, target, workers, symbols),
    )
    keep_model(dictionary_folder / MODEL, out)
    return dictionary_folder / DICTIONARY


def keep_model(model: Path, out: Path) -> None:
    """Copy ``model`` to the place where ``fairseq-luna translate`` finds it."""
    with atomic_write(out / MODEL) as copied:
        shutil.copyfile(model, copied)


def cut_splits(text: Path, target: Path, cutters: Cutters, workers: int, splits: Sequence[str] = SPLITS) -> None:
    """Write the pieces of ``splits``, one line for each line in the folder ``text``."""
    target.mkdir(exist_ok=True)
    for split in splits:
        for language, cut in cutters.items():
            name = f"{split}.{language}"
            transform(cut, text / name, target / name, what=f"cutting {name}", workers=workers)


def _write_clean_training_text(
    raw: Path, pieces: Path, target: Path, *, rules: LengthLimits, languages: Sequence[str], leave_out: str | None
) -> None:
    """Write the training text without the pairs that are dropped. All sentences of valid and test are kept.

    Raises:
        UsageError: no pair is left.
    """
    target.mkdir()
    dropped: Counter[str] = Counter()
    texts, (source, of) = ([folder / f"train.{language}" for language in languages] for folder in (raw, pieces))
    held_out = Overlap(raw, languages, leave_out)

    def left() -> Iterator[Pair]:
        """Yield the pairs of pieces that are not left out because of the held-out text."""
        for text, pair in zip(read_pairs(*texts), read_pairs(source, of), strict=True):
            if held_out.record_or_leave_out(text):
                dropped[f"{leave_out} of valid or test"] += 1
            else:
                yield pair

    pairs = progress_bar(left(), "cleaning", count_lines(source))
    if not write_splits(clean_pairs(pairs, rules, dropped), [("train", None)], target, languages):
        listed = ", ".join(f"{rule}: {count:,}" for rule, count in dropped.items())
        raise UsageError(f"no training pair is left; dropped are {listed}")
    for name, content in ((DROPPED, dropped), (OVERLAP, held_out.counts())):
        (target / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _keep_references(raw: Path, text: Path, target: Path, languages: Sequence[str]) -> None:
    """Copy the raw valid and test, for scoring, and the tokenized test if ``text`` is tokenized."""
    target.mkdir()
    for split in ("valid", "test"):
        for language in languages:
            shutil.copyfile(raw / f"{split}.{language}", target / f"{split}.{language}")
    if text != raw:
        shutil.copyfile(text / f"test.{languages[1]}", target / f"test.tok.{languages[1]}")


def binarize(
    training: Path,
    pieces: Path,
    target: Path,
    workers: int,
    log: Path,
    *,
    languages: Sequence[str],
    words: Mapping[str, Path] | None = None,
) -> None:
    """Run fairseq-preprocess.

    Args:
        training: folder of the training text.
        pieces: folder of valid and test.
        languages: source and target.
        words: dictionaries by language, or None for a joined one of the training text.
    """
    source, of = languages
    arguments = ["--source-lang", source, "--target-lang", of, "--workers", str(workers)]
    files = words or {}
    if len(set(files.values())) < len(languages):
        arguments += ["--joined-dictionary", *([f"--srcdict={files[source]}"] if files else [])]
    else:
        arguments += [f"--srcdict={files[source]}", f"--tgtdict={files[of]}"]
    arguments += [f"--trainpref={training / 'train'}", f"--validpref={pieces / 'valid'}"]  # a path may begin with -
    arguments += [f"--testpref={pieces / 'test'}", f"--destdir={target}"]
    with show_elapsed_time("fairseq-preprocess"):
        run_fairseq("preprocess", arguments, log)

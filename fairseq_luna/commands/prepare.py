"""Turn two files of sentences, in two languages, into the data of fairseq-train.

    fairseq-luna prepare --train text.en text.de --hold-out 500 -s en -t de --out data
    fairseq-luna prepare --train a.en a.de --valid b.en b.de --test c.en c.de -s en -t de --out data
    fairseq-luna prepare --train new.en new.de --hold-out 500 -s en -t de --out new \\
        --pieces data/joint.model --dictionary data/bin/dict.en.txt data/bin/dict.de.txt

Files are UTF-8, plain or .gz, with one sentence per line and its translation in the same line of the other file.
--train, --valid and --test may be given several times. The validation text chooses the best checkpoint; the test text
is for scoring. If one of them is missing, --hold-out N takes N pairs for it from the end of the training text. The
folder --out then contains

    bin/           the data for fairseq-train
    reference/     the unchanged text of valid and test, to translate and to score
    joint.model    the SentencePiece model, of both languages together

--pieces takes the SentencePiece model of another folder, and --dictionary its dictionaries, so that a model that was
trained there can read this data.

Training pairs with an empty side, too many pieces, or sides of too different lengths are dropped and counted. If the
command is interrupted, run it again: it resumes where it stopped. With other files or settings it refuses the folder.
The last lines of the output are the commands that train, translate and score.
"""

import math
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from .. import environment
from ..command_line import positive
from ..model_files import check_file
from ..subwords import is_blank
from ..text_files import language_suffix, read_pairs, truncate
from ..usage_error import UsageError
from .preparing import provenance
from .preparing.cleaning import KINDS, PAIRS, SOURCES, LengthLimits
from .preparing.corpus import SPLITS, Text, check_texts, gather
from .preparing.parallel import available_cores
from .preparing.provenance import named_fingerprint
from .shell_commands import shell, show_next, shown_path
from .training_commands import train_on_text

# Pieces of the joint vocabulary by the number of training pairs, each up to so many.
VOCABULARIES = ((20_000, 2_000), (200_000, 8_000), (1_000_000, 16_000), (math.inf, 32_000))
LEAVE_OUT = f"--leave-out {PAIRS} (or {SOURCES}) keeps them out of the training text, in another folder --out"
COVERAGE = (
    "share of the training text's characters that get a piece (default: 1; SentencePiece's authors recommend 0.9995 "
    "for Chinese and Japanese, where rare characters then become unknown tokens)"
)
TEXTS = {"train": "the training text", "valid": "the validation text", "test": "the test text"}
DICTIONARY_NAME = re.compile(r"dict\.(.+)\.txt")  # fairseq's, with the language
TWO_LETTERS = re.compile("[a-z]{2}")  # a language by ISO 639-1


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    for split in SPLITS:
        files: dict[str, Any] = {"nargs": 2, "type": Path, "metavar": ("SOURCE", "TARGET"), "action": "append"}
        add(
            f"--{split}",
            **files,
            default=[],
            required=split == "train",
            help=f"source and target file of {TEXTS[split]}",
        )
    add("-s", "--source-lang", required=True, metavar="LANG", help="source language, such as en")
    add("-t", "--target-lang", required=True, metavar="LANG", help="target language, such as de")
    add("--out", type=Path, default=Path("data"), metavar="FOLDER", help="folder to write to (default: %(default)s)")
    add(
        "--hold-out",
        metavar="N",
        type=positive,
        help="training pairs to take for each of valid and test",
    )
    sizes = ", ".join(f"{size:,}" for _, size in VOCABULARIES)
    add(
        "--vocabulary-size",
        metavar="N",
        type=positive,
        help=f"pieces (default: {sizes}, by number of training pairs)",
    )
    add("--coverage", type=float, metavar="X", help=COVERAGE)
    add("--pieces", type=Path, metavar="FILE", help="existing SentencePiece model to use instead of learning one")
    files = {"nargs": "+", "type": Path, "metavar": "FILE", "default": []}
    add("--dictionary", **files, help="existing fairseq dictionaries for --pieces: source and target, or one for both")
    what = "leave out training pairs if both sides, or the source, are in valid or test too"
    add("--leave-out", choices=KINDS, help=what)
    what = "accept texts that look as if source and target were swapped, such as translations of few different words"
    add("--not-swapped", action="store_true", help=what)
    add(
        "--longest",
        type=positive,
        default=250,
        metavar="N",
        help="maximum number of pieces in a training sentence (default: 250)",
    )
    add(
        "--ratio",
        type=float,
        default=3.0,
        metavar="X",
        help="maximum length ratio of a pair (default: 3)",
    )
    add(
        "--workers",
        type=positive,
        default=available_cores(),
        metavar="N",
        help="processes (default: %(default)s)",
    )


def run(args: Namespace) -> None:
    languages = (args.source_lang, args.target_lang)
    texts: dict[str, list[Text]] = {split: [(pair[0], pair[1]) for pair in getattr(args, split)] for split in SPLITS}
    check_arguments(args, languages, texts)
    hold_out = args.hold_out or 0
    advice = " If they are not, add --not-swapped"
    train = check_texts(texts, hold_out=hold_out, compare_sides=not args.not_swapped, advice=advice)
    vocabulary = None if args.pieces else args.vocabulary_size or of_size(train, VOCABULARIES)
    coverage = None if args.pieces else args.coverage or 1.0
    rules = LengthLimits(args.longest, args.ratio)
    chosen = {
        "--vocabulary-size": vocabulary,
        "rules": rules._asdict(),
        "languages": languages,
        "--hold-out": args.hold_out,
        "--coverage": coverage,
        "--leave-out": args.leave_out,
        "--pieces": named_fingerprint(args.pieces) if args.pieces else None,
        "--dictionary": [*map(named_fingerprint, args.dictionary)] or None,
        "files": {split: [[*map(named_fingerprint, pair)] for pair in pairs] for split, pairs in texts.items()},
    }
    # Before the text is gathered, a bad file may still be replaced.
    if begun := provenance.is_begun(args.out):
        provenance.check_provenance(args.out, chosen)
        print(
            f"{args.out}: was made with the same settings from files with the same content; existing parts are reused"
        )
    elif args.out.is_dir() and any(args.out.iterdir()):
        print(f"{args.out}: has other files, which stay as they are")
    environment.require_fairseq()
    from .preparing.piece_dictionaries import check_existing
    from .preparing.pipeline import data_summary, prepare

    if args.pieces:
        check_existing(args.pieces, args.dictionary)

    provenance.record_provenance(args.out, chosen)
    if (args.out / "bin").exists():
        print(f"data: reusing {args.out / 'bin'}")
    else:
        write = partial(gather, texts, train=train, hold_out=hold_out, languages=languages)
        options: dict[str, Any] = {"rules": rules, "workers": args.workers, "leave_out": args.leave_out}
        options |= {"pieces": args.pieces, "dictionaries": args.dictionary} if args.pieces else {"coverage": coverage}
        options["vocabulary"] = vocabulary
        try:
            prepare(args.out, write, languages=languages, **options)
        except UsageError as error:
            if not begun and getattr(error, "status", 2) == 2:  # a refusal; after a failure, finished parts are kept
                provenance.forget(args.out)
            raise
    show_pair(texts["train"], languages)
    pairs, description = data_summary(args.out, languages[0], None if args.leave_out else LEAVE_OUT) or (train, None)
    if description:
        print(f"{description}\n{args.out / 'work'} can be deleted")
    show_commands(args.out, languages, pairs, joined=same_dictionary(args.out, languages))


def show_pair(texts: Sequence[Text], languages: Sequence[str]) -> None:
    """Print the first pair without an empty side, so that the user sees if the files are in the wrong order."""
    complete_pairs = ((text, pair) for text in texts for pair in read_pairs(*text) if not any(map(is_blank, pair)))
    text, pair = next(complete_pairs)
    for side, language, file, line in zip(("source", "target"), languages, text, pair, strict=True):
        print(f"{side} {language}, from {file}: {truncate(line)}")


def same_dictionary(out: Path, languages: Sequence[str]) -> bool:
    """Whether both languages have the same dictionary."""
    source, target = ((out / "bin" / f"dict.{language}.txt").read_bytes() for language in languages)
    return source == target


def show_commands(out: Path, languages: Sequence[str], pairs: int, *, joined: bool) -> None:
    """Print the commands that train on the data in ``out``, translate its test text and score the translation."""
    import torch  # takes seconds; wrong flags are refused before that

    source, target = (out / "reference" / f"test.{language}" for language in languages)
    translations = out / f"translations.{languages[1]}"
    train = shell(*train_on_text(out, languages, pairs, joined=joined, on_gpu=torch.cuda.is_available()))
    translate = (
        f"{shell('fairseq-luna', 'translate', out / 'checkpoints')} < {shown_path(source)} > {shown_path(translations)}"
    )
    score = shell("fairseq-luna", "score", translations, "--reference", target)
    show_next(f"train, with settings for {pairs:,} pairs", train)
    show_next("then translate the test and score it", translate, score)


def of_size(pairs: int, table: Sequence[tuple[float, int]]) -> int:
    """The value in ``table`` for a text of this number of ``pairs``."""
    return next(value for most, value in table if pairs <= most)


def check_arguments(args: Namespace, languages: tuple[str, str], texts: dict[str, list[Text]]) -> None:
    """Raises UsageError for flags that do not go together, and for files that are missing or in the wrong order."""
    check_languages(languages)
    if not 1 <= args.ratio < math.inf:
        raise UsageError(f"--ratio {args.ratio}: must be 1 or more, and finite")
    if args.coverage is not None and not 0 < args.coverage <= 1:
        raise UsageError(f"--coverage {args.coverage}: must be above 0 and at most 1")
    check_existing_flags(args)
    existing = [*([args.pieces] if args.pieces else []), *args.dictionary]
    for path in (*chain.from_iterable(chain.from_iterable(texts.values())), *existing):
        check_file(path, "file")
    for text in chain.from_iterable(texts.values()):
        check_text_files(text, languages)
    for split, pairs in texts.items():
        check_repeated(split, pairs)
    for path in (args.out, *args.out.parents):
        if path.exists() and not path.is_dir():
            raise UsageError(f"--out {args.out}: {'that' if path == args.out else path} is a file; name a new folder")
    if not _is_text(str(args.out)):
        raise UsageError(
            f"--out {args.out}: SentencePiece cannot read this name in the locale's encoding; set PYTHONUTF8=1, or give"
            " another name"
        )
    for mark in (os.pathsep, ","):
        if mark in str(args.out):
            raise UsageError(f"--out {args.out}: fairseq takes {mark} for the end of a folder's name; leave it out")
    lacking = [f"--{split}" for split, pairs in texts.items() if not pairs]
    if lacking and not args.hold_out:
        raise UsageError(f"give {' and '.join(lacking)}, or --hold-out N to take it from the training text")
    if args.hold_out and not lacking:
        raise UsageError(f"--hold-out {args.hold_out}: valid and test are given; leave the flag out")


def check_existing_flags(args: Namespace) -> None:
    """Raises UsageError for flags that do not go together with an existing SentencePiece model."""
    if args.dictionary and not args.pieces:
        raise UsageError(f"--dictionary {args.dictionary[0]}: give its SentencePiece model, too, with --pieces")
    if len(args.dictionary) > 2:
        raise UsageError(
            f"--dictionary {' '.join(map(str, args.dictionary))}: give one file, or the files of two languages"
        )
    check_dictionary_names(args.dictionary, (args.source_lang, args.target_lang))
    for flag, value in (("--vocabulary-size", args.vocabulary_size), ("--coverage", args.coverage)):
        if args.pieces and value is not None:
            raise UsageError(f"{flag} {value}: is for new pieces; leave it or --pieces out")


def check_dictionary_names(files: Sequence[Path], languages: tuple[str, str]) -> None:
    """Raises UsageError if two dictionaries have names such as dict.de.txt, in the order of target and source."""
    if len(files) < 2 or not all(file.is_file() for file in files) or files[0].read_bytes() == files[1].read_bytes():
        return
    for file, language in zip(files, reversed(languages), strict=True):
        if (match := DICTIONARY_NAME.fullmatch(file.name)) and match[1] == language:
            raise UsageError(
                f"--dictionary {file}: its name says {language}; give the dictionary of {languages[0]} first, then the"
                f" dictionary of {languages[1]}"
            )


def _is_text(name: str) -> bool:
    """Whether Python could decode ``name`` in the locale's encoding."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def check_repeated(split: str, pairs: Sequence[Text]) -> None:
    """Raises UsageError if a pair of files is given twice for a split, whose sentences would then count twice."""
    resolved = [tuple(path.resolve() for path in pair) for pair in pairs]
    for place, pair in enumerate(pairs):
        if resolved[place] in resolved[:place]:
            raise UsageError(f"--{split} {pair[0]} {pair[1]}: is given twice; give it once")


def check_text_files(text: Text, languages: tuple[str, str]) -> None:
    """Raises UsageError if the files of ``text`` are one, or their names contradict ``languages``."""
    source, target = text
    if source.samefile(target):
        raise UsageError(f"{source} {target}: the same file is given as the source and as the target")
    named = language_suffix(source), language_suffix(target)
    if named[0] == languages[1] or named[1] == languages[0]:
        raise UsageError(
            f"{source} {target}: their names say that the source is not {languages[0]}; give the files in the "
            "order of -s and -t, or rename them"
        )
    # Two endings such as en and de are languages; en beside -s english or -s en_gb may be right.
    if named[0] == named[1] or not all(map(TWO_LETTERS.fullmatch, named)):
        return
    for flag, language, name, file in zip(("-s", "-t"), languages, named, text, strict=True):
        if language != name and TWO_LETTERS.fullmatch(language):
            raise UsageError(
                f"{flag} {language}: {file} says {name} by its name; give {flag} {name}, or rename the file"
            )


def check_languages(languages: tuple[str, str]) -> None:
    """Raises UsageError for languages that cannot be part of fairseq's file names, such as train.en-de.de.idx."""
    for flag, name in zip(("--source-lang", "--target-lang"), languages, strict=True):
        if not re.fullmatch(r"\w+", name):
            raise UsageError(f"{flag} {name}: must be letters, digits or _, such as en or pt_br")
    if languages[0] == languages[1]:
        raise UsageError(f"-s {languages[0]} -t {languages[1]}: give two names, such as en and de")

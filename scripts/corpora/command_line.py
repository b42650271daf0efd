"""The flags, sources, steps and summary of every prepare_* command."""

import json
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from corpora import settings
from corpora.catalogue import LANGUAGES, Split
from corpora.gathering import gather
from corpora.parallel import available_cores
from corpora.pipeline import DROPPED, SENTENCEPIECE, SUBWORD_NMT, Recipe, prepare
from corpora.settings import fingerprint
from corpora.sources import Text, fetch, find, missing_remotes, unpack
from fairseq_luna.commands.command_line import CommandError, Parser, positive
from fairseq_luna.commands.steps import USER_DIR, program, remove, shown_path
from fairseq_luna.commands.text_files import count_lines


def parser(description: str | None, *, out: str, sizes: dict[str, int]) -> Parser:
    """The common flags; ``sizes`` are the default sizes of both kinds of pieces."""
    made = Parser(description)
    add = made.add_argument
    add_common(made, out=out, sizes=sizes)
    add("--from-dir", type=Path, help="read the files from this folder instead of downloading them")
    add(
        "--hold-out",
        metavar="N",
        type=positive,
        help="if --from-dir lacks valid or test, take N pairs for each from the end of the training text",
    )
    add("--dry-run", action="store_true", help="print what would be downloaded or read, and stop")
    return made


def add_common(made: Parser, *, out: str, sizes: dict[str, int]) -> None:
    """The flags that do not depend on where the text comes from; see :func:`parser`."""
    add = made.add_argument
    add("--out", type=Path, default=Path(out), help="output folder (default: %(default)s)")
    add(
        "--bpe",
        choices=(SENTENCEPIECE, SUBWORD_NMT),
        default=SENTENCEPIECE,
        help="pieces of raw text, or of Moses' tokens (default: %(default)s)",
    )
    add(
        "--merges",
        "--vocabulary-size",
        dest="size",
        metavar="N",
        type=positive,
        help="joint merges of subword-nmt, joint vocabulary of SentencePiece (default: "
        f"{sizes[SUBWORD_NMT]}, {sizes[SENTENCEPIECE]})",
    )
    add("--tokenised", action="store_true", help="your own files are tokenised; for subword-nmt")
    add("--workers", type=positive, default=available_cores(), help="processes (default: %(default)s)")


def run(args: Namespace, splits: Sequence[Split], recipe: Recipe, training: str) -> None:
    """Prepare the corpus; the last line is ``training``, a command."""
    out: Path = args.out
    if args.hold_out and not args.from_dir:
        raise CommandError("--hold-out: only with --from-dir; the published corpus has its own valid and test")
    if args.tokenised and (not args.from_dir or recipe.bpe != SUBWORD_NMT):
        raise CommandError(f"--tokenised: only with --from-dir and --bpe {SUBWORD_NMT}")
    if args.dry_run:
        _show_plan(args, splits)
        return
    chosen: dict[str, Any] = {
        **choices(recipe),
        "corpus": [part.title for split in splits for part in split.parts],
        "--hold-out": args.hold_out,
    }
    settings.check(out, chosen)
    texts = _from_folder(args, splits) if args.from_dir else _from_network(out, splits)
    chosen["files"] = (
        {split: [[fingerprint(file.path) for file in text] for text in found] for split, found in texts.items()}
        if args.from_dir
        else "downloaded"
    )
    # Before the text is gathered, a bad file may still be replaced.
    if settings.is_begun(out):
        settings.check(out, chosen)
    settings.keep(out, chosen)

    def make_plain_text(folder: Path) -> None:
        extracted = out / "work" / "extracted"
        remove(extracted)
        files = {name: [unpack(text, extracted) for text in found] for name, found in texts.items()}
        gather(splits, files, folder, hold_out=args.hold_out or 0)
        remove(extracted)

    finish(out, make_plain_text, recipe, args.workers, training)


def choices(recipe: Recipe) -> dict[str, Any]:
    """What of ``recipe`` a folder's settings hold."""
    return {
        "--bpe": recipe.bpe,
        "size": recipe.size,
        "rules": recipe.rules._asdict(),
        "--tokenised": recipe.tokenised,
    }


def finish(
    out: Path,
    make_plain_text: Callable[[Path], None],
    recipe: Recipe,
    workers: int,
    training: str,
    languages: Sequence[str] = LANGUAGES,
) -> None:
    """Make the data unless it exists, and say what to do with it; see :func:`run` and :func:`.pipeline.prepare`."""
    if (out / "bin").exists():
        print(f"data: reusing {out / 'bin'}")
    else:
        prepare(out, make_plain_text, recipe, workers, languages)
    _summarise(out, languages[0])
    print(training)


def train_base(out: Path, languages: Sequence[str] = LANGUAGES) -> str:
    """A command to paste that trains luna_base on the data in ``out``, on a GPU or, slowly, on a CPU."""
    source, target = languages
    return (
        f"{program('fairseq-train')} {shown_path(out / 'bin')} --user-dir {shown_path(USER_DIR)} "
        f"--save-dir {shown_path(out / 'checkpoints')} -s {source} -t {target} --arch luna_base "
        "--share-all-embeddings --dropout 0.1 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
        "--optimizer adam --adam-betas '(0.9,0.98)' --lr 0.0007 --lr-scheduler inverse_sqrt --warmup-updates 4000 "
        "--max-tokens 4096 --max-update 100000"
    )


def _from_folder(args: Namespace, splits: Sequence[Split]) -> dict[str, list[Text]]:
    folder: Path = args.from_dir
    if not folder.is_dir():
        raise CommandError(f"--from-dir {folder}: no such folder")
    texts, lacking = {}, []
    for split in splits:
        texts[split.name], missing = find(split, folder)
        if missing and not (args.hold_out and split.name != "train"):
            lacking += missing
    if lacking:
        or_else = "" if args.hold_out or not texts["train"] else ", or take valid and test from train with --hold-out N"
        raise CommandError(f"--from-dir {folder} lacks {'; '.join(lacking)}: add it{or_else}")
    if args.hold_out and all(texts.values()):
        raise CommandError(f"--hold-out {args.hold_out}: {folder} has its own valid and test; leave the flag out")
    return texts


def _from_network(out: Path, splits: Sequence[Split]) -> dict[str, list[Text]]:
    if any((out / made).exists() for made in ("work/raw", "bin")):
        return {split.name: [] for split in splits}
    return {split.name: fetch(split, out / "downloads") for split in splits}


def _show_plan(args: Namespace, splits: Sequence[Split]) -> None:
    for split in splits:
        if args.from_dir:
            texts, lacking = find(split, args.from_dir)
            for file in dict.fromkeys(file.path for text in texts for file in text):
                print(f"{split.name}: would read {file}")
            for what in lacking:
                print(f"{split.name}: lacks {what}")
            continue
        for remote in missing_remotes(split, args.out / "downloads"):
            size = f"{remote.size:,} bytes" if remote.size else "size unknown"
            print(f"{split.name}: would download {remote.urls[0]} ({size}, {remote.checksum})")


def _summarise(out: Path, language: str) -> None:
    clean = out / "work" / "clean"
    if not (clean / DROPPED).exists():
        return
    dropped = json.loads((clean / DROPPED).read_text(encoding="utf-8"))
    listed = "".join(f"; {rule}: {count:,}" for rule, count in dropped.items())
    print(
        f"training pairs: {count_lines(clean / f'train.{language}'):,} kept, {sum(dropped.values()):,} dropped{listed}"
    )
    print(f"{out / 'work'} can be deleted")


def check_languages(languages: tuple[str, str]) -> None:
    """Raises CommandError for names that fairseq cannot read in those of its files, such as train.en-de.de.idx."""
    for flag, name in zip(("--source-lang", "--target-lang"), languages, strict=True):
        if not re.fullmatch(r"\w+", name):
            raise CommandError(f"{flag} {name}: must be letters, digits or _, such as en or pt_br")
    if languages[0] == languages[1]:
        raise CommandError(f"-s {languages[0]} -t {languages[1]}: give two names, such as en and de")

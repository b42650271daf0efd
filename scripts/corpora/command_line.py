"""The flags, sources, steps and summary of every prepare_* command."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from corpora.catalogue import LANGUAGES, Split
from corpora.gathering import gather
from corpora.pipeline import SENTENCEPIECE, SUBWORD_NMT, Recipe, prepare
from corpora.sources import Text, fetch, find, missing_remotes, unpack
from fairseq_luna.commands.command_line import CommandError, Parser, positive
from fairseq_luna.commands.preparing import settings
from fairseq_luna.commands.preparing.parallel import available_cores
from fairseq_luna.commands.preparing.pipeline import summary
from fairseq_luna.commands.preparing.settings import fingerprint
from fairseq_luna.commands.steps import remove


def parser(description: str | None, *, out: str, sizes: dict[str, int]) -> Parser:
    """The common flags; ``sizes`` are the default sizes of both kinds of pieces."""
    made = Parser(description)
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
    add("--from-dir", type=Path, help="read the files from this folder instead of downloading them")
    add(
        "--hold-out",
        metavar="N",
        type=positive,
        help="if --from-dir lacks valid or test, take N pairs for each from the end of the training text",
    )
    add("--dry-run", action="store_true", help="print what would be downloaded or read, and stop")
    return made


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
) -> None:
    """Make the data unless it exists, and say what to do with it; see :func:`run` and :func:`.pipeline.prepare`."""
    if (out / "bin").exists():
        print(f"data: reusing {out / 'bin'}")
    else:
        prepare(out, make_plain_text, recipe, workers)
    if found := summary(out, LANGUAGES[0]):
        print(found[1])
        print(f"{out / 'work'} can be deleted")
    print(training)


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

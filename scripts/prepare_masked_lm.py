"""Prepare plain text for fairseq's task masked_lm.

    python scripts/prepare_masked_lm.py --train talks.en news.en.gz --valid valid.en --for data/imdb

Files are UTF-8, plain or .gz. The lines between two empty ones are a document, which becomes one line of --out's bin/.
Documents of more than 128 KiB, such as a text without empty lines, become several.

With --for FOLDER, an output of scripts/prepare_imdb.py, the pieces are that folder's, so that its classifiers can start
from the language model, and its training texts are added without their labels, as train1, which fairseq-train reads
beside train. Without it, SentencePiece learns joint.model from the training text.
"""

import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from corpora.labelled import TEXT, Column, binarise
from fairseq_luna.commands.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.preparing import settings
from fairseq_luna.commands.preparing.parallel import available_cores
from fairseq_luna.commands.preparing.pieces import LONGEST_LINE, Cut, write_dictionary
from fairseq_luna.commands.preparing.pipeline import cut_splits, sentencepiece_model
from fairseq_luna.commands.preparing.settings import fingerprint
from fairseq_luna.commands.progress import shown
from fairseq_luna.commands.steps import once
from fairseq_luna.commands.text_files import read_lines
from shared.recipes import recipe

_SPLITS = ("train", "valid")
_SIZE = 8000
# Bytes, so that the thousands of lines that a worker gets fit into memory.
_LONGEST_DOCUMENT = 1 << 17
# The training text of a classifier, and what is taken from its folder.
_TRAIN = "bin/input0/train"
_OF_CLASSIFIER = ("joint.model", f"{_TRAIN}.bin", f"{_TRAIN}.idx")


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    for split in _SPLITS:
        add(f"--{split}", nargs="+", type=Path, required=True, metavar="FILE")
    add("--for", dest="classifier", type=Path, metavar="FOLDER", help="use its pieces and add its texts")
    add("--vocabulary-size", dest="size", metavar="N", type=positive, help=f"pieces to learn (default: {_SIZE})")
    add("--out", type=Path, default=Path("data/masked_lm"), help="output folder (default: %(default)s)")
    add("--workers", type=positive, default=available_cores(), help="processes (default: %(default)s)")
    run(parser.parse_args(arguments))


def run(args: Namespace) -> None:
    files: dict[str, list[Path]] = {split: getattr(args, split) for split in _SPLITS}
    for path in chain(*files.values()):
        if not path.is_file():
            raise CommandError(f"{path}: there is no such file")
    if args.classifier:
        check_classifier(args)
    chosen = {
        "size": None if args.classifier else args.size or _SIZE,
        "--for": [fingerprint(args.classifier / name) for name in _OF_CLASSIFIER] if args.classifier else None,
        "files": {split: [*map(fingerprint, paths)] for split, paths in files.items()},
    }
    settings.check(args.out, chosen)
    # Bad text is refused before anything is written.
    counts = {split: sum(1 for _ in documents(paths)) for split, paths in files.items()}
    for split, count in counts.items():
        if not count:
            raise CommandError(f"--{split} {files[split][0]}: has no text")
    settings.keep(args.out, chosen)
    prepare(args, files)
    print(f"{counts['train']:,} training documents; {args.out / 'work'} can be deleted")
    print(recipe("imdb", args.out / "bin", "luna", TASK="masked_lm"))


def check_classifier(args: Namespace) -> None:
    if args.size:
        raise CommandError(f"--vocabulary-size {args.size}: the pieces are those of --for {args.classifier}")
    if lacking := [name for name in _OF_CLASSIFIER if not (args.classifier / name).is_file()]:
        raise CommandError(f"--for {args.classifier} lacks {lacking[0]}; give an output of scripts/prepare_imdb.py")


def documents(paths: Sequence[Path]) -> Iterator[str]:
    """Each document of the files as one line, or several if it is too long for one.

    Raises:
        CommandError: a line that SentencePiece would not learn from.
    """
    for path in paths:
        document: list[str] = []
        total = 0
        for number, line in enumerate(chain(read_lines(path), [""]), 1):
            sentence = line.strip()
            size = len(sentence.encode()) + 1
            if size > LONGEST_LINE:
                raise CommandError(f"{path}, line {number}: has {size:,} bytes; put line ends between its sentences")
            if document and (not sentence or total + size > _LONGEST_DOCUMENT):
                yield " ".join(document)
                document, total = [], 0
            if sentence:
                document.append(sentence)
                total += size


def prepare(args: Namespace, files: dict[str, list[Path]]) -> None:
    """Make the pieces and the data-bin."""
    work: Path = args.out / "work"
    raw, pieces, dictionary = work / "raw", work / "pieces", work / "dict.txt"
    once("plain text", raw, partial(gather, files))
    model = args.out / "joint.model"
    if args.classifier:
        once("pieces of --for", model, partial(shutil.copyfile, args.classifier / "joint.model"))
    else:
        sentencepiece_model(args.out, [raw / f"train.{TEXT}"], args.size or _SIZE)
    once("pieces", pieces, lambda target: cut_splits(raw, target, Cut(model), args.workers, [TEXT], _SPLITS))
    once("dictionary", dictionary, partial(write_dictionary, model))
    once("data", args.out / "bin", partial(make_data, args, Column(pieces, TEXT, dictionary)))


def gather(files: dict[str, list[Path]], target: Path) -> None:
    target.mkdir()
    for split, paths in files.items():
        with (target / f"{split}.{TEXT}").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{document}\n" for document in shown(documents(paths), f"gathering {split}"))


def make_data(args: Namespace, text: Column, target: Path) -> None:
    """fairseq-preprocess, and the training text of the classifier beside it."""
    binarise({"": text}, args.workers, args.out / "work" / "preprocess.output", target, _SPLITS)
    for ending in ("bin", "idx") if args.classifier else ():
        shutil.copyfile(args.classifier / f"{_TRAIN}.{ending}", target / f"train1.{ending}")


if __name__ == "__main__":
    sys.exit(main())

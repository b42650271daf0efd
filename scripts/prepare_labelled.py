"""Prepare labelled texts and the Long Range Arena (arXiv 2011.04006) for fairseq's task sentence_prediction.

    python scripts/prepare_labelled.py reviews --from-dir aclImdb --out data/imdb [--training 250 2500]
    python scripts/prepare_labelled.py text --from-dir aclImdb
    python scripts/prepare_labelled.py listops
    python scripts/prepare_labelled.py retrieval --from-dir aan
    python scripts/prepare_labelled.py image --from-dir cifar-10-batches-bin
    python scripts/prepare_labelled.py pathfinder --from-dir lra_release/pathfinder32

reviews (SentencePiece's pieces) and text (bytes) read {train,test}.tsv, plain or .gz, with LABEL<TAB>TEXT in each line,
in random order; or the published folder of the Large Movie Review Dataset. listops is drawn: the same for the same
--seed. retrieval reads new_aan_pairs.{train,eval,test}.tsv, image the binary version of CIFAR-10, pathfinder the
pictures and metadata of curv_contour_length_14. TASK --help has the flags of a task.

--out then has bin/input0, bin/label and, for retrieval, bin/input1. They are sorted by length: with --no-shuffle an
update has texts of similar length, so that little is padding, and only the order of updates is random. Texts of reviews
are whole: fairseq-train shortens them with --shorten-method truncate --max-positions N.
"""

import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset

from corpora import labelled, listops
from corpora.documents import written
from corpora.labelled import NUMBERS, Splits
from fairseq_luna.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.preparing import provenance
from fairseq_luna.commands.preparing.parallel import available_cores
from fairseq_luna.commands.preparing.pipeline import MODEL, SPLITS, cut_splits, dictionary_of_pieces, learned_model
from fairseq_luna.commands.preparing.sentencepiece_model import Segmenter
from fairseq_luna.commands.shell_commands import run_fairseq
from fairseq_luna.files import make_unless_present
from fairseq_luna.progress import progress_bar
from shared.recipes import recipe

LABEL, INPUTS = "label", ("input0", "input1")
LONGEST = {"listops": 2_000, "text": 4_000, "retrieval": 4_000}  # as published, and what the models read
HELD_OUT = {"reviews": 2_500, "text": 2_500, "image": 5_000}  # of the end of train, for valid


class Data(NamedTuple):
    """The rows of each split; the symbols of the texts, or None for SentencePiece's pieces; the labels, the inputs."""

    splits: Splits
    symbols: Sequence[str] | None = NUMBERS
    labels: Sequence[str] = ("0", "1")
    inputs: Sequence[str] = INPUTS[:1]


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    tasks = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    for name in TASKS:
        add = tasks.add_parser(name, description=__doc__).add_argument
        add("--out", type=Path, default=Path("data") / name, help="output folder (default: %(default)s)")
        add("--workers", type=positive, default=available_cores(), help="processes (default: %(default)s)")
        if name == "listops":
            add("--seed", type=int, default=1, help="another seed gives other lists (default: %(default)s)")
            counts = {"default": (96_000, 2_000, 2_000), "help": "lists (default: 96000 2000 2000)"}
            add("--examples", nargs=3, type=positive, metavar=("TRAIN", "VALID", "TEST"), **counts)
            add("--shortest", type=positive, default=500, metavar="N", help="symbols of a list (default: 500)")
        else:
            add("--from-dir", type=Path, required=True, help="the folder of the files")
        if name in LONGEST:
            add("--length", type=positive, default=LONGEST[name], metavar="N", help="at most, of a text (%(default)s)")
        if name in HELD_OUT:
            add("--hold-out", type=positive, default=HELD_OUT[name], metavar="N", help="for valid (%(default)s)")
        if name == "reviews":
            add("--size", metavar="N", type=positive, default=8000, help="pieces (default: %(default)s)")
            add("--training", metavar="N", nargs="+", type=positive, default=[], help="also data of N training texts")
    run(parser.parse_args(arguments))


def run(args: Namespace) -> None:
    unrelated = ("out", "workers", "from_dir", "training")
    chosen = {name: value for name, value in vars(args).items() if name not in unrelated}
    if args.task in LONGEST and args.length > LONGEST[args.task]:
        raise CommandError(f"--length {args.length}: the recipes read at most {LONGEST[args.task]}")
    if args.task != "listops":
        if not args.from_dir.is_dir():
            raise CommandError(f"--from-dir {args.from_dir}: no such folder")
        chosen["files"] = fingerprints(args.from_dir)
    provenance.check_provenance(args.out, chosen)
    data = TASKS[args.task](args)  # bad input is refused before anything is written
    provenance.record_provenance(args.out, chosen)
    prepare(args, data)
    print(f"{args.out / 'work'} can be deleted")
    name, *chosen_task = ("imdb",) if args.task == "reviews" else ("lra", f"lra={args.task}")
    print(recipe(name, args.out / "bin", *chosen_task))


def fingerprints(folder: Path) -> list[dict[str, object]]:
    """The fingerprints of a task's files; of Pathfinder's pictures, only of their list."""
    places = [path for path in sorted(folder.rglob("pos")) if path.is_dir()]
    found = [provenance.named_fingerprint(path.parent, labelled.review_files(path)) for path in places]
    files = [*folder.glob("*.tsv*"), *folder.glob("*.bin"), *folder.glob(f"{labelled.HARD}/metadata/*")]
    return [*found, *(provenance.named_fingerprint(path) for path in sorted(files))]


def prepare(args: Namespace, data: Data) -> None:
    """Make the data-bins, from files in ``work``."""
    work: Path = args.out / "work"
    examples, texts, symbols, labels = work / "examples", work / "examples", work / "dict.txt", work / "labels.txt"
    make_unless_present("examples", examples, partial(write, data))
    if data.symbols is None:
        texts = work / "pieces"
        symbols = cut_reviews(args.out, examples, texts, args.size, args.workers)
    else:
        make_unless_present("symbols", symbols, partial(write_symbols, data.symbols))
    make_unless_present("labels", labels, partial(write_symbols, data.labels))
    columns = {LABEL: (examples, labels), **dict.fromkeys(data.inputs, (texts, symbols))}
    make_unless_present(
        "data in the given order", work / "bin", partial(binarize, columns, args.workers, work / "output")
    )
    make_unless_present("data", args.out / "bin", partial(sort_by_length, work / "bin", None))
    for first in getattr(args, "training", ()):
        make_unless_present(
            f"data of {first} texts", args.out / f"bin_{first}", partial(sort_by_length, work / "bin", first)
        )


def cut_reviews(out: Path, examples: Path, pieces: Path, size: int, workers: int) -> Path:
    """Write the texts of ``examples`` to ``pieces``, cut; returns the dictionary of the pieces."""
    [name], training = INPUTS[:1], out / "work" / "training"
    model = learned_model(out, [examples / f"train.{name}"], size)
    make_unless_present(
        "pieces of the training text",
        training,
        lambda to: cut_splits(examples, to, {name: Segmenter(model)}, workers, ["train"]),
    )
    dictionary = dictionary_of_pieces(out, model, [training / f"train.{name}"], workers)
    make_unless_present(
        "pieces", pieces, lambda target: cut_splits(examples, target, {name: Segmenter(out / MODEL)}, workers)
    )
    return dictionary


def write(data: Data, target: Path) -> None:
    """Write ``{train,valid,test}.{label,input0,input1}``."""
    target.mkdir()
    for split in SPLITS:
        with ExitStack() as stack:
            columns = [stack.enter_context(written(target / f"{split}.{name}")) for name in (LABEL, *data.inputs)]
            for row in progress_bar(data.splits[split](), split):
                for column, cell in zip(columns, row, strict=True):
                    column.write(cell + "\n")


def write_symbols(symbols: Iterable[str], target: Path) -> None:
    """Write a dictionary of ``symbols``, in their order."""
    target.write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")


def binarize(columns: dict[str, tuple[Path, Path]], workers: int, log: Path, target: Path) -> None:
    """fairseq-preprocess of each column: its name, its folder and its dictionary."""
    for name, (folder, dictionary) in columns.items():
        arguments = ["--only-source", "--srcdict", str(dictionary), "--workers", str(workers)]
        arguments += ["--destdir", str(target / name)]
        for split in SPLITS:
            arguments += [f"--{split}pref", str(folder / f"{split}.{name}")]
        run_fairseq("preprocess", arguments, log)


def sort_by_length(data: Path, count: int | None, target: Path) -> None:
    """Write the data-bin ``data`` with the shortest texts first.

    Args:
        count: only so many training texts, the first of ``data``; None = all.
    """
    dictionaries = {path.parent.name: Dictionary.load(str(path)) for path in sorted(data.glob("*/dict.txt"))}
    for place in dictionaries:
        (target / place).mkdir(parents=True)
        shutil.copyfile(data / place / "dict.txt", target / place / "dict.txt")
    for split in SPLITS:
        columns = {
            name: data_utils.load_indexed_dataset(str(data / name / split), dictionaries[name]) for name in dictionaries
        }
        sizes = np.sum([column.sizes for column in columns.values()], axis=0)
        order = np.argsort(sizes[: count if split == "train" else None], kind="stable")
        for place, column in columns.items():
            path = target / place / split
            builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=len(dictionaries[place]))
            for index in order:
                builder.add_item(column[index])
            builder.finalize(f"{path}.idx")


def make_reviews(args: Namespace) -> Data:
    found = labelled.reviews(args.from_dir, args.hold_out, args.training)
    labels = sorted({label for label, _ in found["train"]})
    return Data({split: partial(iter, rows) for split, rows in found.items()}, None, labels)


def make_text(args: Namespace) -> Data:
    found = labelled.reviews(args.from_dir, args.hold_out)

    def rows(split: str) -> Iterable[labelled.Row]:
        return ((label, labelled.line(text.encode()[: args.length])) for label, text in found[split])

    return Data({split: partial(rows, split) for split in SPLITS}, labels=sorted({row[0] for row in found["train"]}))


def make_listops(args: Namespace) -> Data:
    if not 10 <= args.length >= args.shortest:
        raise CommandError(f"--shortest {args.shortest} --length {args.length}: at least 10, and not below --shortest")
    rows = listops.rows(args.seed, args.shortest, args.length)  # read in the order of the splits
    splits = {split: partial(islice, rows, count) for split, count in zip(SPLITS, args.examples, strict=True)}
    return Data(splits, listops.SYMBOLS, listops.DIGITS)


TASKS: dict[str, Callable[[Namespace], Data]] = {
    "reviews": make_reviews,
    "text": make_text,
    "listops": make_listops,
    "retrieval": lambda args: Data(labelled.papers(args.from_dir, args.length), inputs=INPUTS),
    "image": lambda args: Data(labelled.pictures(args.from_dir, args.hold_out), labels=listops.DIGITS),
    "pathfinder": lambda args: Data(labelled.paths(args.from_dir)),
}

if __name__ == "__main__":
    sys.exit(main())

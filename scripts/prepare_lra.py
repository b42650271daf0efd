"""Prepare a task of the Long Range Arena (arXiv 2011.04006) for fairseq's task sentence_prediction.

    python scripts/prepare_lra.py listops --out data/lra/listops
    python scripts/prepare_lra.py pathfinder --out data/lra/pathfinder
    python scripts/prepare_lra.py text --from-dir imdb --out data/lra/text
    python scripts/prepare_lra.py retrieval --from-dir aan --out data/lra/retrieval
    python scripts/prepare_lra.py image --from-dir cifar-10-batches-bin --out data/lra/image

listops and pathfinder are generated: the same examples for the same --seed. The others are read from --from-dir:
text, as scripts/prepare_imdb.py; retrieval, the published new_aan_pairs.{train,eval,test}.tsv; image,
the binary version of CIFAR-10. --out then has bin/input0, bin/label and, for retrieval, bin/input1, sorted by length as
scripts/prepare_imdb.py has them. TASK --help has the flags of a task.
"""

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from inspect import getdoc
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from corpora import labelled
from corpora.documents import written
from corpora.labelled import LABEL, Column, binarise, sort_by_length, write_symbols
from fairseq_luna.commands.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.preparing import settings
from fairseq_luna.commands.preparing.parallel import available_cores
from fairseq_luna.commands.preparing.pipeline import SPLITS
from fairseq_luna.commands.progress import shown
from fairseq_luna.commands.steps import once
from lra import files, listops, pathfinder
from shared.recipes import recipe

INPUTS = ("input0", "input1")


class Data(NamedTuple):
    """Labels, symbols, and the rows of train, valid and test in this order: a label and a line for each input."""

    labels: Sequence[str]
    symbols: Sequence[str]
    splits: Iterable[tuple[str, Iterable[files.Row]]]
    inputs: Sequence[str] = INPUTS[:1]


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    tasks = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    for name, make in TASKS.items():
        task = tasks.add_parser(name, description=getdoc(make))
        add = task.add_argument
        add("--out", type=Path, default=Path("data/lra") / name, help="output folder (default: %(default)s)")
        add("--workers", type=positive, default=available_cores(), help="processes (default: %(default)s)")
        if name in GENERATED:
            add("--seed", type=int, default=1, help="another seed gives other examples (default: %(default)s)")
            counts = {"default": GENERATED[name], "help": f"examples (default: {GENERATED[name]})"}
            add("--examples", nargs=3, type=positive, metavar=("TRAIN", "VALID", "TEST"), **counts)
        else:
            add("--from-dir", type=Path, required=True, help="the folder of the files")
        if name == "listops":
            lengths = {"default": (500, LONGEST[name]), "help": "symbols of a list, at most 2000 (default: 500 2000)"}
            add("--length", nargs=2, type=readable(name), metavar=("MIN", "MAX"), **lengths)
        elif name in LONGEST:
            cut = {
                "default": LONGEST[name],
                "help": "of a text, at most and by default %(default)s; the rest is left out",
            }
            add("--length", type=readable(name), metavar="BYTES", **cut)
        if name in HELD_OUT:
            add("--hold-out", metavar="N", type=positive, help=f"last of train, for valid (default: {HELD_OUT[name]})")
    run(parser.parse_args(arguments))


def run(args: Namespace) -> None:
    chosen = {name: value for name, value in vars(args).items() if name not in ("out", "workers", "from_dir")}
    if args.task not in GENERATED:
        if not args.from_dir.is_dir():
            raise CommandError(f"--from-dir {args.from_dir}: no such folder")
        if args.task == "text":
            given = [*labelled.find_all(args.from_dir, args.hold_out).values()]
        else:
            given = sorted(path for path in args.from_dir.iterdir() if path.suffix in (".tsv", ".bin"))
        chosen["files"] = [*map(labelled.fingerprint, given)]
    settings.check(args.out, chosen)
    data = TASKS[args.task](args)  # bad input is refused before anything is written
    settings.keep(args.out, chosen)
    once("data", args.out / "bin", partial(make_bin, args, data))
    print(f"{args.out / 'work'} can be deleted")
    print(recipe("lra", args.out / "bin", args.task, "luna_128"))


def readable(task: str) -> Callable[[str], int]:
    """The type of a flag for a length that the models of examples/lra/config read."""

    def checked(text: str) -> int:
        if positive(text) > LONGEST[task]:
            raise ArgumentTypeError(f"{text}: examples/lra reads at most {LONGEST[task]}")
        return int(text)

    return checked


def make_bin(args: Namespace, data: Data, target: Path) -> None:
    """Make the data-bin, from files in ``work``."""
    work = args.out / "work"
    once("examples", work / "examples", partial(write, data))
    once("symbols", work / "symbols.txt", partial(write_symbols, data.symbols))
    once("labels", work / "labels.txt", partial(write_symbols, data.labels))
    columns = {LABEL: Column(work / "examples", LABEL, work / "labels.txt")}
    for name in data.inputs:
        columns[name] = Column(work / "examples", name, work / "symbols.txt")
    unsorted = work / "bin"
    once("data in the given order", unsorted, partial(binarise, columns, args.workers, work / "preprocess.output"))
    sort_by_length(unsorted, None, target)


def write(data: Data, target: Path) -> None:
    """Write ``{train,valid,test}.{label,input0,input1}``."""
    target.mkdir()
    for split, rows in data.splits:
        with ExitStack() as stack:
            paths = [target / f"{split}.{name}" for name in (LABEL, *data.inputs)]
            columns = [stack.enter_context(written(path)) for path in paths]
            for row in shown(rows, split):
                for column, cell in zip(columns, row, strict=True):
                    column.write(cell + "\n")


def _cut(rows: Iterator[files.Row], counts: Sequence[int]) -> Iterator[tuple[str, Iterator[files.Row]]]:
    """The next rows of an endless generator for each split."""
    return ((split, islice(rows, count)) for split, count in zip(SPLITS, counts, strict=True))


def make_listops(args: Namespace) -> Data:
    """Nested lists of digits with MIN, MAX, MED (median, rounded down) and SM (sum modulo 10); the label is the value.

    Drawn as in the publication: one argument in four is a list, down to a depth of 10.
    """
    lengths = listops.Lengths(*args.length)
    if not 10 <= lengths.longest >= lengths.shortest:
        raise CommandError(f"--length {args.length}: give MIN and MAX, 10 or more and not below MIN")
    return Data(listops.DIGITS, listops.SYMBOLS, _cut(listops.rows(args.seed, lengths), args.examples))


def make_pathfinder(args: Namespace) -> Data:
    """Pictures of 32 x 32 grey values with two dots; the label says whether a dashed path joins them.

    The default 200,000 pictures take 1.7 hours of one core; more --workers share them.
    """
    made = pathfinder.pictures(args.seed, args.workers)
    rows = ((label, files.line(picture)) for label, picture in made)
    return Data(files.LABELS, files.NUMBERS, _cut(rows, args.examples))


def make_text(args: Namespace) -> Data:
    """Bytes of labelled texts: the reviews of IMDB."""
    rows = files.reviews(args.from_dir, args.hold_out, args.length)
    return Data(files.LABELS, files.NUMBERS, _called(rows))


def make_retrieval(args: Namespace) -> Data:
    """Bytes of two papers of the ACL Anthology Network; the label says whether one cites the other."""
    return Data(files.LABELS, files.NUMBERS, _called(files.papers(args.from_dir, args.length)), INPUTS)


def make_image(args: Namespace) -> Data:
    """Pictures of CIFAR-10 in 32 x 32 grey values."""
    rows = files.pictures(args.from_dir, args.hold_out or HELD_OUT["image"])
    return Data(files.CLASSES, files.NUMBERS, _called(rows))


def _called(rows: dict[str, files.Rows]) -> Iterator[tuple[str, Iterator[files.Row]]]:
    return ((split, read()) for split, read in rows.items())


TASKS: dict[str, Callable[[Namespace], Data]] = {
    "listops": make_listops,
    "pathfinder": make_pathfinder,
    "text": make_text,
    "retrieval": make_retrieval,
    "image": make_image,
}
# As published; the published text has no valid, and its test stands in for it.
GENERATED = {"listops": (96_000, 2_000, 2_000), "pathfinder": (160_000, 20_000, 20_000)}
LONGEST = {"listops": 2_000, "text": 4_000, "retrieval": 4_000}
HELD_OUT = {"text": labelled.HOLD_OUT, "image": 5_000}

if __name__ == "__main__":
    sys.exit(main())

"""Prepare a task of GLUE for fairseq's task sentence_prediction.

    python scripts/prepare_glue.py QQP --from-dir GLUE/QQP --pieces-of data/masked_lm

--from-dir has the published train.tsv and dev.tsv, plain or .gz; dev becomes valid. The labels of test.tsv are not
published. Lines with another number of columns than the first one, of which QQP has some, are left out and counted.

--out then has bin/input0, bin/label and, for pairs, bin/input1. With --pieces-of FOLDER, an output of
scripts/prepare_masked_lm.py, a language model of that text fits; without it, SentencePiece learns joint.model.
"""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from corpora.documents import written
from corpora.labelled import LABEL, Column, binarise, find, write_symbols
from fairseq_luna.commands.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.preparing import settings
from fairseq_luna.commands.preparing.parallel import available_cores
from fairseq_luna.commands.preparing.pieces import Cut, write_dictionary
from fairseq_luna.commands.preparing.pipeline import cut_splits, sentencepiece_model
from fairseq_luna.commands.preparing.settings import fingerprint
from fairseq_luna.commands.steps import once
from fairseq_luna.commands.text_files import read_lines
from shared.recipes import recipe

_SIZE = 8000
# Our names of the splits, and GLUE's.
_SPLITS = {"train": "train", "valid": "dev"}
Row = list[str]


class Columns(NamedTuple):
    """The names of a task's columns: its label, and one text or two."""

    label: str
    texts: tuple[str, ...]

    @property
    def inputs(self) -> list[str]:
        return [f"input{number}" for number in range(len(self.texts))]


TASKS = {
    "SST-2": Columns("label", ("sentence",)),
    "QNLI": Columns("label", ("question", "sentence")),
    "QQP": Columns("is_duplicate", ("question1", "question2")),
}


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("task", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    add("--from-dir", type=Path, required=True, help="the folder of the task's files")
    add("--pieces-of", type=Path, metavar="FOLDER", help="use its joint.model")
    add("--vocabulary-size", dest="size", metavar="N", type=positive, help=f"pieces to learn (default: {_SIZE})")
    add("--out", type=Path, help="output folder (default: data/glue/TASK)")
    add("--workers", type=positive, default=available_cores(), help="processes (default: %(default)s)")
    args = parser.parse_args(arguments)
    args.out = args.out or Path("data/glue") / args.task
    run(args)


def run(args: Namespace) -> None:
    columns = TASKS[args.task]
    files = {}
    for split, name in _SPLITS.items():
        if not (path := find(args.from_dir, name)):
            raise CommandError(f"--from-dir {args.from_dir} lacks {name}.tsv or {name}.tsv.gz")
        files[split] = path
    if args.pieces_of and args.size:
        raise CommandError(f"--vocabulary-size {args.size}: the pieces are those of --pieces-of {args.pieces_of}")
    if args.pieces_of and not (args.pieces_of / "joint.model").is_file():
        raise CommandError(f"--pieces-of {args.pieces_of} lacks joint.model")
    chosen = {
        "task": args.task,
        "size": None if args.pieces_of else args.size or _SIZE,
        "--pieces-of": fingerprint(args.pieces_of / "joint.model") if args.pieces_of else None,
        "files": {split: fingerprint(path) for split, path in files.items()},
    }
    settings.check(args.out, chosen)
    # Bad text is refused before anything is written.
    left_out: Counter[str] = Counter()
    found = {split: Counter(row[0] for row in read(path, columns, left_out)) for split, path in files.items()}
    labels = sorted(found["train"])
    if len(labels) < 2:
        raise CommandError(f"{files['train']}: all labels are {', '.join(labels) or 'missing'}")
    if unknown := sorted(set(found["valid"]) - set(labels)):
        raise CommandError(f"{files['valid']}: the training text does not have its label {unknown[0]}")
    settings.keep(args.out, chosen)
    prepare(args, columns, files, labels)
    counts = ", ".join(f"{found[split].total():,} of {path.name}" for split, path in files.items())
    dropped = "".join(f"; left out of {name}: {count:,}" for name, count in left_out.items())
    print(f"{counts}{dropped}; {args.out / 'work'} can be deleted")
    print(recipe("glue", args.out / "bin", args.task, "luna"))


def read(path: Path, columns: Columns, left_out: "Counter[str]") -> Iterator[Row]:
    """The label and the texts of each line; ``left_out`` counts the others by file.

    Raises:
        CommandError: the first line does not name the columns of the task, or a label has a space.
    """
    lines = enumerate(read_lines(path), 1)
    names = next(lines, (1, ""))[1].split("\t")
    if lacking := [name for name in (columns.label, *columns.texts) if name not in names]:
        raise CommandError(f"{path}, line 1: there is no column {lacking[0]}; is it a file of another task?")
    places = [names.index(name) for name in (columns.label, *columns.texts)]
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) != len(names):
            left_out[path.name] += 1
            continue
        row = [cells[place].strip() for place in places]
        if len(row[0].split()) != 1:
            raise CommandError(f"{path}, line {number}: its label is '{row[0]}'")
        yield row


def prepare(args: Namespace, columns: Columns, files: dict[str, Path], labels: Sequence[str]) -> None:
    """Make the pieces and the data-bin."""
    work: Path = args.out / "work"
    raw, pieces, dictionary = work / "raw", work / "pieces", work / "dict.txt"
    once("plain text", raw, partial(gather, files, columns))
    if args.pieces_of:
        model = args.pieces_of / "joint.model"
    else:
        training = [raw / f"train.{name}" for name in columns.inputs]
        model = sentencepiece_model(args.out, training, args.size or _SIZE)
    once("pieces", pieces, lambda target: cut_splits(raw, target, Cut(model), args.workers, columns.inputs, [*_SPLITS]))
    once("dictionary", dictionary, partial(write_dictionary, model))
    once("labels", work / "labels.txt", partial(write_symbols, labels))
    places = {name: Column(pieces, name, dictionary) for name in columns.inputs}
    places[LABEL] = Column(raw, LABEL, work / "labels.txt")
    once(
        "data",
        args.out / "bin",
        lambda target: binarise(places, args.workers, work / "preprocess.output", target, [*_SPLITS]),
    )


def gather(files: dict[str, Path], columns: Columns, target: Path) -> None:
    target.mkdir()
    for split, path in files.items():
        with ExitStack() as stack:
            outputs = [stack.enter_context(written(target / f"{split}.{name}")) for name in (LABEL, *columns.inputs)]
            for row in read(path, columns, Counter()):
                for file, cell in zip(outputs, row, strict=True):
                    file.write(cell + "\n")


if __name__ == "__main__":
    sys.exit(main())

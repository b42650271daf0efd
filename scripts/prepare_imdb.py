"""Prepare reviews with labels, or other labelled texts, for fairseq's task sentence_prediction.

    python scripts/prepare_imdb.py --from-dir imdb --out data/imdb [--training 250 2500]

--from-dir has train.tsv and test.tsv, plain or .gz, with LABEL<TAB>TEXT in each line, in random order; or it is the
published folder aclImdb of the Large Movie Review Dataset, whose files are read in an order that mixes the labels (1 is
pos, 0 neg). Without a valid.tsv, the last --hold-out texts of train become it.

--out then has bin/input0 (text) and bin/label, joint.model (SentencePiece), and with --training N bin_N, whose training
text is the first N texts; valid, test, pieces and dictionary are the same. bin/input0 is also data for masked_lm. Texts
are whole: fairseq-train shortens them with --shorten-method truncate --max-positions N. They are sorted by length: with
--no-shuffle an update has texts of similar length, so that little is padding, and only the order of updates is random.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from corpora.labelled import (
    HOLD_OUT,
    LABEL,
    TEXT,
    Column,
    binarise,
    check,
    find_all,
    fingerprint,
    gather,
    sort_by_length,
    write_symbols,
)
from fairseq_luna.commands.command_line import Parser, command, positive
from fairseq_luna.commands.preparing import settings
from fairseq_luna.commands.preparing.parallel import available_cores
from fairseq_luna.commands.preparing.pieces import Cut, write_dictionary
from fairseq_luna.commands.preparing.pipeline import cut_splits, sentencepiece_model
from fairseq_luna.commands.steps import once
from shared.recipes import recipe


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--from-dir", type=Path, required=True, help="the folder of the texts")
    add("--out", type=Path, default=Path("data/imdb"), help="output folder (default: %(default)s)")
    add("--vocabulary-size", metavar="N", type=positive, default=8000, help="pieces (default: %(default)s)")
    add("--hold-out", metavar="N", type=positive, help=f"texts of train that become valid (default: {HOLD_OUT})")
    add("--training", metavar="N", nargs="+", type=positive, default=[], help="also data with N training texts")
    add("--workers", type=positive, default=available_cores(), help="processes (default: %(default)s)")
    run(parser.parse_args(arguments))


def run(args: Namespace) -> None:
    files = find_all(args.from_dir, args.hold_out)
    hold_out = args.hold_out or HOLD_OUT
    chosen = {
        "size": args.vocabulary_size,
        "hold_out": None if "valid" in files else hold_out,
        "files": {split: fingerprint(path) for split, path in files.items()},
    }
    settings.check(args.out, chosen)
    # Bad text is refused before anything is written.
    texts, labels = check(files, hold_out, args.training)
    settings.keep(args.out, chosen)
    prepare(args, files, hold_out, labels)
    print(f"{texts:,} training texts; {args.out / 'work'} can be deleted")
    print(recipe("imdb", args.out / "bin", "luna"))


def prepare(args: Namespace, files: dict[str, Path], hold_out: int, labels: Sequence[str]) -> None:
    """Make the pieces and every data-bin."""
    work = args.out / "work"
    raw, pieces, unsorted = work / "raw", work / "pieces", work / "bin"
    once("plain text", raw, partial(gather, files, hold_out))
    model = sentencepiece_model(args.out, [raw / f"train.{TEXT}"], args.vocabulary_size)
    once("pieces", pieces, lambda target: cut_splits(raw, target, Cut(model), args.workers, [TEXT]))
    once("dictionary", work / "dict.txt", lambda target: write_dictionary(model, target))
    once("labels", work / "labels.txt", partial(write_symbols, labels))
    columns = {
        "input0": Column(pieces, TEXT, work / "dict.txt"),
        "label": Column(raw, LABEL, work / "labels.txt"),
    }
    once("data in the files' order", unsorted, partial(binarise, columns, args.workers, work / "preprocess.output"))
    once("data", args.out / "bin", partial(sort_by_length, unsorted, None))
    for first in args.training:
        once(f"data of {first} texts", args.out / f"bin_{first}", partial(sort_by_length, unsorted, first))


if __name__ == "__main__":
    sys.exit(main())

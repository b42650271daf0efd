"""Prepare whole documents for fairseq: consecutive segments of a document are one example.

    python scripts/prepare_documents.py --from-dir documents --pieces 128 1024 --segments 1 --out data/documents

--from-dir has {train,valid,test}.{en,de}, plain or .gz, or a folder with such files for each source: a segment a line,
an empty line between documents, at the same lines in both languages. Every limit of length gets a folder in --out,
such as pieces_1024, with bin/ and reference/; all have the same text, the same SentencePiece pieces (joint.model) and
the same dictionary. Another run adds limits. A segment longer than the limit is an example of its own.

Captions, or other text without empty lines, are one document: --segments 1 4 16 64 joins so many of them.
"""

import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fairseq.data.indexed_dataset import MMapIndexedDataset

from corpora.documents import LABELS, PIECES, TEXT, Limit, Source, find_sources, gather, join, read_documents
from fairseq_luna.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.prepare import check_languages
from fairseq_luna.commands.preparing import provenance
from fairseq_luna.commands.preparing.corpus import check_sides, trigram_profiles
from fairseq_luna.commands.preparing.parallel import available_cores
from fairseq_luna.commands.preparing.pipeline import (
    MODEL,
    binarize,
    cut_splits,
    dictionary_of_pieces,
    learned_model,
)
from fairseq_luna.commands.preparing.provenance import named_fingerprint
from fairseq_luna.commands.preparing.sentencepiece_model import Segmenter
from fairseq_luna.files import make_unless_present
from fairseq_luna.text_files import SEPARATOR, count_lines, read_pairs
from shared.recipes import recipe

_SEGMENTS = "segments"


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--from-dir", type=Path, required=True, help="the folder of the text")
    add("--out", type=Path, default=Path("data/documents"), help="output folder (default: %(default)s)")
    add("--pieces", metavar="N", nargs="+", type=positive, default=[], help="at most N tokens an example, each side")
    add("--segments", metavar="N", nargs="+", type=positive, default=[], help="at most N segments an example")
    add("--source-lang", default="en", help="(default: %(default)s)")
    add("--target-lang", default="de", help="(default: %(default)s)")
    add("--vocabulary-size", metavar="N", type=positive, default=8000, help="joint pieces (default: %(default)s)")
    add("--workers", type=positive, default=available_cores(), help="processes (default: %(default)s)")
    run(parser.parse_args(arguments))


def run(args: Namespace) -> None:
    limits = [Limit(PIECES, count) for count in args.pieces] + [Limit(_SEGMENTS, count) for count in args.segments]
    if not limits:
        raise CommandError("give --pieces N, --segments N or both: the longest examples")
    languages = (args.source_lang, args.target_lang)
    check_languages(languages)
    sources = find_sources(args.from_dir, languages)
    chosen = {
        "languages": languages,
        "size": args.vocabulary_size,
        "files": {
            source.name: {split: [*map(named_fingerprint, pair)] for split, pair in source.files.items()}
            for source in sources
        },
    }
    provenance.check_provenance(args.out, chosen)
    if not (args.out / provenance.FILE).exists():
        check(sources)
    provenance.record_provenance(args.out, chosen)
    lacking = [limit for limit in limits if not (args.out / str(limit) / "bin").exists()]
    if lacking:
        prepare(args, sources, languages, lacking)
    for limit in limits:
        print(training(args.out / str(limit) / "bin"))


def training(data: Path) -> str:
    """A command to paste that trains on ``data``, whose examples may be longer than the recipe's defaults."""
    # A list, because sizes are memory of a file that is closed with its data set.
    datasets = [MMapIndexedDataset(str(path.with_suffix(""))) for path in data.glob("*.idx")]
    longest = max((int(dataset.sizes.max()) for dataset in datasets), default=0)
    limits = {"task.max_source_positions": 2048, "task.max_target_positions": 2048, "dataset.max_tokens": 4096}
    return recipe("documents", data, *(f"{name}={longest}" for name, least in limits.items() if longest > least))


def check(sources: Sequence[Source]) -> None:
    """Read all text, so that bad text is refused before anything is written."""
    training = trigram_profiles(read_pairs(*sources[0].files["train"]))
    for pair in (pair for source in sources for pair in source.files.values()):
        for _ in read_documents(*pair):
            pass
        check_sides(training, trigram_profiles(read_pairs(*pair)), pair)


def prepare(args: Namespace, sources: Sequence[Source], languages: tuple[str, str], limits: Sequence[Limit]) -> None:
    """Make what all limits share, and then the folder of each."""
    work: Path = args.out / "work"
    raw, pieces = work / "raw", work / PIECES
    make_unless_present("plain text", raw, lambda target: gather(sources, languages, target))
    if made := sorted(args.out.glob("*/bin/dict.*.txt")):
        dictionary = made[0]
    else:
        training = [raw / f"train.{language}" for language in languages]
        model = learned_model(args.out, training, args.vocabulary_size, symbols=[SEPARATOR])
        cut, cutters = work / "training", dict.fromkeys(languages, Segmenter(model))
        make_unless_present(
            "pieces of the training text", cut, lambda target: cut_splits(raw, target, cutters, args.workers, ["train"])
        )
        training = [cut / path.name for path in training]
        dictionary = dictionary_of_pieces(args.out, model, training, args.workers, symbols=[SEPARATOR])
    make_unless_present(
        "pieces",
        pieces,
        lambda target: cut_splits(raw, target, dict.fromkeys(languages, Segmenter(args.out / MODEL)), args.workers),
    )
    words = dict.fromkeys(languages, dictionary)
    for limit in limits:
        folder, joined = args.out / str(limit), work / str(limit)
        make_unless_present(f"{limit}", joined, partial(join, raw, pieces, languages, limit))
        kept = partial(shutil.copytree, joined / TEXT, ignore=shutil.ignore_patterns("train.*"))
        make_unless_present(f"{limit}, references", folder / "reference", kept)
        data = partial(binarize, joined / PIECES, joined / PIECES, languages=languages, words=words)
        make_unless_present(
            f"{limit}, data", folder / "bin", partial(data, workers=args.workers, log=work / f"{limit}.output")
        )
        print(f"{limit}: {count_lines(joined / TEXT / f'train.{LABELS}'):,} training examples", flush=True)
    print(f"{work} can be deleted")


if __name__ == "__main__":
    sys.exit(main())

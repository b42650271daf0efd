"""Prepare a parallel text of your own, in any two languages, for fairseq.

    python scripts/prepare_text.py --train a.en a.de --valid b.en b.de --test c.en c.de -s en -t de --out data/mine

Files are UTF-8, plain or .gz, a sentence a line, at the same lines in both languages; --train may be given several
times. Without --valid or --test, --hold-out N takes N pairs for each from the end of the training text. --out then has
bin/, reference/ (raw text for scoring) and joint.model or codes, as for the published corpora (docs/train.md).

Training pairs with an empty side, too many pieces, or sides of too different lengths are dropped and counted.
"""

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from corpora import settings
from corpora.catalogue import Split
from corpora.cleaning import Rules
from corpora.command_line import add_common, check_languages, choices, finish, train_base
from corpora.gathering import gather
from corpora.pipeline import SENTENCEPIECE, SPLITS, SUBWORD_NMT, Recipe
from corpora.settings import fingerprint
from fairseq_luna.commands.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.text_files import ending

_SIZES = {SUBWORD_NMT: 32_000, SENTENCEPIECE: 32_000}


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    for split in SPLITS:
        add(
            f"--{split}",
            nargs=2,
            type=Path,
            metavar=("SOURCE", "TARGET"),
            action="append",
            default=[],
            required=split == "train",
        )
    add("-s", "--source-lang", required=True, metavar="LANG", help="name of the source language, such as en")
    add("-t", "--target-lang", required=True, metavar="LANG", help="name of the target language, such as de")
    add("--hold-out", metavar="N", type=positive, help="pairs of training text for each missing one of valid and test")
    add("--lower", action="store_true", help="lower-case; for subword-nmt")
    add("--coverage", type=float, default=1.0, help="share of characters with a piece; about 0.9995 for Chinese")
    add("--longest", type=positive, default=250, help="pieces of a training sentence (default: %(default)s)")
    add("--ratio", type=float, default=3.0, help="between the lengths of a pair, in pieces (default: %(default)s)")
    add_common(parser, out="data/text", sizes=_SIZES)
    run(parser.parse_args(arguments))


def run(args: Namespace) -> None:
    languages = (args.source_lang, args.target_lang)
    texts = {split: [tuple(pair) for pair in getattr(args, split)] for split in SPLITS}
    check(args, languages, texts)
    rules = Rules(args.longest, args.ratio)
    recipe = Recipe(args.bpe, args.size or _SIZES[args.bpe], rules, args.tokenised, args.lower, coverage=args.coverage)
    chosen = {
        **choices(recipe),
        "languages": languages,
        "--hold-out": args.hold_out,
        "--lower": args.lower,
        "--coverage": args.coverage,
        "files": {split: [[*map(fingerprint, pair)] for pair in pairs] for split, pairs in texts.items()},
    }
    # Before the text is gathered, a bad file may still be replaced.
    if settings.is_begun(args.out):
        settings.check(args.out, chosen)
    settings.keep(args.out, chosen)
    splits = [Split(name, (), ()) for name in SPLITS]
    make_plain_text = partial(gather, splits, texts, hold_out=args.hold_out or 0, languages=languages)
    finish(args.out, make_plain_text, recipe, args.workers, train_base(args.out, languages), languages)


def check(args: Namespace, languages: tuple[str, str], texts: dict[str, list[tuple[Path, ...]]]) -> None:
    """Refuse flags that do not go together, and files that are not there."""
    check_languages(languages)
    if not 1 <= args.ratio < math.inf:
        raise CommandError(f"--ratio {args.ratio}: must be 1 or more, and finite")
    if not 0 < args.coverage <= 1:
        raise CommandError(f"--coverage {args.coverage}: must be above 0 and at most 1")
    if (args.tokenised or args.lower) and args.bpe != SUBWORD_NMT:
        raise CommandError(f"--tokenised and --lower: only with --bpe {SUBWORD_NMT}")
    if args.tokenised and args.lower:
        raise CommandError("--lower: tokenised text is taken as it is; lower-case it before")
    for pairs in texts.values():
        for path in (path for pair in pairs for path in pair):
            if not path.is_file():
                raise CommandError(f"{path}: there is no such file")
    for source, target in chain.from_iterable(texts.values()):
        if ending(source) == languages[1] or ending(target) == languages[0]:
            raise CommandError(
                f"{source} {target}: their names say that the source is not {languages[0]}; give the files in the "
                "order of -s and -t, or rename them"
            )
    lacking = [f"--{split}" for split, pairs in texts.items() if not pairs]
    if lacking and not args.hold_out:
        raise CommandError(f"give {' and '.join(lacking)}, or --hold-out N to take it from the training text")
    if args.hold_out and not lacking:
        raise CommandError(f"--hold-out {args.hold_out}: valid and test are given; leave the flag out")


if __name__ == "__main__":
    sys.exit(main())

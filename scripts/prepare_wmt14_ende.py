"""Prepare WMT14 English-German (Europarl v7, Common Crawl, News Commentary v9; newstest2013 and 2014) for fairseq.

    python scripts/prepare_wmt14_ende.py --bpe subword-nmt --out data/wmt14_en_de [--from-dir FOLDER]

Downloads 1.2 GB, or takes from --from-dir the archives by their names, the files in them, or train.en, train.de,
valid.*, test.* (plain or .gz). A stopped run resumes. --out then has bin/, reference/ (raw text for scoring) and codes
or joint.model.

--bpe subword-nmt: Moses' tokens, 32,000 joint merges. --bpe sentencepiece: raw text, 32,000 joint pieces. Pairs are
dropped as by clean-corpus-n in fairseq's recipe: more than 250 pieces, or one side over 1.5 times the other.
"""

import sys
from collections.abc import Sequence

from corpora import command_line, wmt14
from corpora.catalogue import LANGUAGES
from corpora.pipeline import SENTENCEPIECE, SUBWORD_NMT, Recipe
from fairseq_luna.commands.command_line import command
from fairseq_luna.commands.preparing.cleaning import Rules
from fairseq_luna.commands.steps import shell
from fairseq_luna.commands.training import on_text

_SIZES = {SUBWORD_NMT: 32_000, SENTENCEPIECE: 32_000}
_RULES = Rules(longest=250, ratio=1.5)
# Common Crawl has thousands of characters of other scripts. Full coverage would spend a fifth of the pieces on them.
_COVERAGE = 0.9995
_PAIRS = 4_500_000  # about, of training text


@command
def main(arguments: Sequence[str] | None = None) -> None:
    args = command_line.parser(__doc__, out="data/wmt14_en_de", sizes=_SIZES).parse_args(arguments)
    size = args.size or _SIZES[args.bpe]
    recipe = Recipe(args.bpe, size, _RULES, args.tokenised, split_hyphens=True, coverage=_COVERAGE)
    command_line.run(args, wmt14.SPLITS, recipe, shell(*on_text(args.out, LANGUAGES, _PAIRS, model=())))


if __name__ == "__main__":
    sys.exit(main())

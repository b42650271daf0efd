"""WMT14 English-German as fairseq reads it: Europarl v7, Common Crawl, News Commentary v9; newstest2013 and 2014.

    python scripts/prepare_wmt14_ende.py --bpe subword-nmt --out data/wmt14_en_de [--from-dir FOLDER]

Downloads 1.2 GB, or takes from --from-dir the archives by their names, what comes out of them, or train.en, train.de,
valid.*, test.* (plain or .gz). A stopped run goes on where it was. In --out afterwards: bin/, reference/ (raw text to
score against) and codes or joint.model.

--bpe subword-nmt: Moses' tokens, 32,000 joint merges. --bpe sentencepiece: raw text, 32,000 joint pieces. Pairs are
dropped as clean-corpus-n does in fairseq's recipe: more than 250 pieces, or one side over 1.5 times the other.
"""

import sys
from pathlib import Path

from corpora import command_line, wmt14
from corpora.cleaning import Rules
from corpora.pipeline import SENTENCEPIECE, SUBWORD_NMT, Recipe
from corpora.problem import report_in_one_line

_SIZES = {SUBWORD_NMT: 32_000, SENTENCEPIECE: 32_000}
_RULES = Rules(longest=250, ratio=1.5)
# Common Crawl has thousands of characters of other scripts. Full coverage would spend a fifth of the pieces on them.
_COVERAGE = 0.9995


def main() -> None:
    parser = command_line.parser_of(__doc__.splitlines()[0], out="data/wmt14_en_de", sizes=_SIZES)
    args = parser.parse_args()
    size = args.size or _SIZES[args.bpe]
    recipe = Recipe(args.bpe, size, _RULES, args.tokenised, split_hyphens=True, coverage=_COVERAGE)
    command_line.run(args, wmt14.SPLITS, recipe, "--arch luna_base --share-all-embeddings")


if __name__ == "__main__":
    sys.exit(report_in_one_line(Path(__file__).name, main))

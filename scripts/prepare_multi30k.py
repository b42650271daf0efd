"""Multi30K English-German captions (task 1, 29,000 pairs) as fairseq reads them.

    python scripts/prepare_multi30k.py --bpe sentencepiece --out data/multi30k [--from-dir FOLDER]

Downloads 1.3 MB, or takes {train,val,test_2016_flickr}.{en,de}, plain or .gz, from --from-dir. In --out afterwards:
bin/, reference/ (raw text to score against) and codes or joint.model.

--bpe sentencepiece: raw cased text, 8,000 joint pieces. --bpe subword-nmt: lower-cased Moses tokens and 10,000 joint
merges, the setting of most published numbers; reference/test.tok.de is the tokenised reference that these use.
"""

import sys
from pathlib import Path

from corpora import command_line, multi30k
from corpora.cleaning import Rules
from corpora.pipeline import SENTENCEPIECE, SUBWORD_NMT, Recipe
from corpora.problem import report_in_one_line

_SIZES = {SUBWORD_NMT: 10_000, SENTENCEPIECE: 8_000}


def main() -> None:
    parser = command_line.parser_of(__doc__.splitlines()[0], out="data/multi30k", sizes=_SIZES)
    args = parser.parse_args()
    # Captions are short and written as pairs: only an empty side is dropped.
    recipe = Recipe(args.bpe, args.size or _SIZES[args.bpe], Rules(), args.tokenised, lower=True)
    command_line.run(args, multi30k.SPLITS, recipe, "--arch luna_tiny --share-all-embeddings")


if __name__ == "__main__":
    sys.exit(report_in_one_line(Path(__file__).name, main))

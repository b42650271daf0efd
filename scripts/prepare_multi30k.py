"""Prepare Multi30K English-German captions (task 1, 29,000 pairs) for fairseq.

    python scripts/prepare_multi30k.py --bpe sentencepiece --out data/multi30k [--from-dir FOLDER]

Downloads 1.3 MB, or takes {train,val,test_2016_flickr}.{en,de}, plain or .gz, from --from-dir. --out then has bin/,
reference/ (raw text for scoring) and codes or joint.model.

--bpe sentencepiece: raw cased text, 8,000 joint pieces. --bpe subword-nmt: lower-cased Moses tokens and 10,000 joint
merges, the setting of most published numbers; reference/test.tok.de is their tokenised reference.
"""

import sys
from collections.abc import Sequence

from corpora import command_line, multi30k
from corpora.pipeline import SENTENCEPIECE, SUBWORD_NMT, Recipe
from fairseq_luna.commands.command_line import command
from fairseq_luna.commands.preparing.cleaning import Rules
from shared import recipes

_SIZES = {SUBWORD_NMT: 10_000, SENTENCEPIECE: 8_000}


@command
def main(arguments: Sequence[str] | None = None) -> None:
    args = command_line.parser(__doc__, out="data/multi30k", sizes=_SIZES).parse_args(arguments)
    # Captions are short and were written in pairs: only pairs with an empty side are dropped.
    recipe = Recipe(args.bpe, args.size or _SIZES[args.bpe], Rules(), args.tokenised, lower=True)
    training = recipes.recipe("multi30k", args.out / "bin", "luna_convolution")
    command_line.run(args, multi30k.SPLITS, recipe, training)


if __name__ == "__main__":
    sys.exit(main())

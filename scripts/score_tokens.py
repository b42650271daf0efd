"""Scores of older papers beside sacreBLEU and chrF: BLEU of tokens, and of tokens with compounds split at hyphens.

    python scripts/score_tokens.py generate-test.txt --reference wmt14/reference/test.de
    python scripts/score_tokens.py generate-test.txt --reference test.de --tokenised-by moses --lowercase

Several files are shards of one system. D- lines are scored: they are the text if fairseq-generate had --bpe and
--tokenizer, and equal to the H- lines otherwise; remaining pieces are joined. Text that Moses tokenised before training
needs --tokenised-by moses: its H- lines are then detokenised, for all scores. fairseq-luna score has confidence
intervals, comparisons and documents.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from sacrebleu.metrics import BLEU

from fairseq_luna.commands.command_line import CommandError, Parser, command
from fairseq_luna.commands.score import System, check_against, sacrebleu_language, warn
from fairseq_luna.commands.scoring import doubts, measures, pieces
from fairseq_luna.commands.scoring.generated import read_both
from fairseq_luna.commands.scoring.report import lines_of_scores
from fairseq_luna.commands.text_files import read_lines
from scoring.tokens import detokenise, language_of, split_compounds, tokenise

_MOSES, _NONE = "moses", "none"


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("generated", nargs="+", type=Path, metavar="FILE", help="fairseq-generate's output, its shards, or text")
    add("--reference", type=Path, required=True, help="the untouched reference, one sentence a line")
    add("--remove-bpe", choices=pieces.CHOICES, default=pieces.AUTO, help="the kind of remaining pieces")
    add("--tokenised-by", choices=(_MOSES, _NONE), default=_NONE, help="detokenise the hypotheses")
    add("--tokenize", choices=(_MOSES, _NONE), help="for tokenised BLEU; none: split at spaces")
    add("--tokenised-reference", type=Path, help="score the model's tokens against this file")
    add("--language", metavar="LANG", help="of Moses and sacreBLEU (default: the ending of --reference)")
    add("--lowercase", action="store_true", help="score lower-cased text")
    run(parser.parse_args(arguments))


def run(args: Namespace) -> None:
    if args.tokenised_reference and args.tokenize == _MOSES:
        raise CommandError("--tokenised-reference: is tokenised already; leave out --tokenize moses")
    references = list(read_lines(args.reference))
    as_it_stands = args.tokenize == _NONE or args.tokenised_reference is not None
    language = args.language
    if language is None and (args.tokenised_by == _MOSES or not as_it_stands):
        language = language_of(args.reference)
    tokens, text, plain, targets = read_both(args.generated, args.remove_bpe)
    name = str(args.generated[0])
    if args.tokenised_by == _MOSES:
        # Not the D- lines: fairseq-generate may have detokenised those, which cannot be seen from them.
        text = detokenise(tokens, language or "")
    elif doubts.tokenised(name, text):
        warn(f"{name} looks tokenised; with --tokenised-by moses it is detokenised first")
    check_against(System(name, text, plain, targets), references, args.reference)
    theirs = list(read_lines(args.tokenised_reference)) if args.tokenised_reference else references
    targets = targets if args.tokenised_reference else {}
    check_against(System(name, tokens, plain, targets), theirs, args.tokenised_reference or args.reference)
    if not as_it_stands:
        tokens, theirs = tokenise(text, language), tokenise(references, language)
    made = "as it stands" if as_it_stands else f"Moses, {language}"
    scores = measures.score(text, references, target=sacrebleu_language(args), lowercase=args.lowercase)
    warn(doubts.another_reference(name, args.reference, scores.bleu.matched or 0))
    of_tokens = bleu_of_tokens(tokens, theirs, made, lowercase=args.lowercase)
    print("\n".join(lines_of_scores(name, measures.Scores(len(references), scores.measures + of_tokens))))


def bleu_of_tokens(
    hypotheses: Sequence[str], references: Sequence[str], made: str, *, lowercase: bool = False
) -> tuple[measures.Measure, measures.Measure]:
    """multi-bleu.perl's BLEU of tokens between spaces, 0 if no n-gram of some length matches; and of split compounds.

    Args:
        hypotheses, references: as many of both.
        made: how the tokens were made, for the names.
        lowercase: score lower-cased tokens.
    """
    split = [[split_compounds(line) for line in side] for side in (hypotheses, references)]

    def bleu(name: str, *sides: Sequence[str]) -> measures.Measure:
        metric = BLEU(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)
        return measures.measure(f"{name} ({made})", metric, *sides)

    return bleu("tokenised BLEU", hypotheses, references), bleu("compound-split BLEU", *split)


if __name__ == "__main__":
    sys.exit(main())

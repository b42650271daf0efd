"""Score summaries, of fairseq-generate or one a line, with ROUGE-1, -2 and -L.

pip install rouge-score
python scripts/score_summaries.py generate-test.txt --reference reference/test.target
"""

import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from fairseq_luna.commands.command_line import CommandError, Parser, command
from fairseq_luna.commands.score import System, check_against
from fairseq_luna.commands.scoring.generated import read_both
from fairseq_luna.commands.scoring.measures import Measure, Scores
from fairseq_luna.commands.scoring.report import lines_of_scores
from fairseq_luna.commands.text_files import read_lines

# rouge-score's names, and ours.
_NAMES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-L of sentences"}
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("generated", nargs="+", type=Path, metavar="FILE", help="fairseq-generate's output, its shards, or text")
    add("--reference", type=Path, required=True, help="the untouched summaries, one a line")
    args = parser.parse_args(arguments)
    _, text, plain, targets = read_both(args.generated)
    references = list(read_lines(args.reference))
    check_against(System(str(args.generated[0]), text, plain, targets), references, args.reference)
    print("\n".join(lines_of_scores(str(args.generated[0]), rouge(text, references), "summaries")))


def rouge(summaries: Sequence[str], references: Sequence[str]) -> Scores:
    """Score summaries: the mean F1 of each measure, of lower-cased and stemmed English words.

    ROUGE-L of sentences is what most papers call ROUGE-L: for each sentence of the reference, the union of its longest
    common subsequences with the sentences of the summary. A sentence ends at ``.``, ``!`` or ``?`` before a space.

    Args:
        summaries: one for each reference, in its order.
        references: untouched.

    Raises:
        CommandError: rouge-score is not installed.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise CommandError("rouge-score is not installed: pip install rouge-score") from error
    scorer = RougeScorer(list(_NAMES), use_stemmer=True)
    found = [scorer.score(_lines(of), _lines(ours)) for ours, of in zip(summaries, references, strict=True)]
    signature = f"rouge-score {version('rouge-score')}, stemmed, mean F1"
    measures = (
        Measure(name, 100 * sum(each[key].fmeasure for each in found) / len(found), signature)
        for key, name in _NAMES.items()
    )
    return Scores(len(found), tuple(measures))


def _lines(text: str) -> str:
    return _END_OF_SENTENCE.sub("\n", text.strip())


if __name__ == "__main__":
    sys.exit(main())

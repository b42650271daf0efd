"""ROUGE of summaries, by the library rouge-score."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from fairseq_luna.commands.command_line import CommandError
from scoring.measures import Measure, check_counts

# rouge-score's names, and ours.
_NAMES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-L of sentences"}
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class RougeScores:
    """All scores of one system; ``sentences`` is the number of scored summaries."""

    sentences: int
    measures: tuple[Measure, ...]


def rouge(summaries: Sequence[str], references: Sequence[str]) -> RougeScores:
    """Score summaries: the mean F1 of each measure, of lower-cased and stemmed English words.

    ROUGE-L of sentences is what most papers call ROUGE-L: for each sentence of the reference, the union of its longest
    common subsequences with the sentences of the summary. A sentence ends at ``.``, ``!`` or ``?`` before a space.

    Args:
        summaries: one for each reference, in its order.
        references: untouched.

    Raises:
        CommandError: rouge-score is not installed, there are no references, or the numbers of both differ.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise CommandError("--rouge: rouge-score is not installed: pip install rouge-score") from error
    check_counts(len(summaries), len(references))
    scorer = RougeScorer(list(_NAMES), use_stemmer=True)
    found = [scorer.score(_lines(of), _lines(ours)) for ours, of in zip(summaries, references, strict=True)]
    signature = f"rouge-score {version('rouge-score')}, stemmed, mean F1"
    measures = (
        Measure(name, 100 * sum(each[key].fmeasure for each in found) / len(found), signature)
        for key, name in _NAMES.items()
    )
    return RougeScores(len(found), tuple(measures))


def _lines(text: str) -> str:
    return _END_OF_SENTENCE.sub("\n", text.strip())

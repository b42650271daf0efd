"""sacreBLEU of fairseq-generate's output against the untouched reference.

fairseq's own BLEU line is not used: it scores the binarised references, in which unknown words are replaced.
"""

import re
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics import BLEU

from scoring.generated import by_number


class Score(NamedTuple):
    bleu: float
    signature: str
    exact: int


def hypotheses(generated: Path) -> list[str]:
    """The translations in the order of the test's sentences, which fairseq-generate changes."""
    found = by_number([generated], "H")
    return [found[index] for index in sorted(found)]


def tokens_per_second(generated: Path) -> str:
    """The speed that fairseq-generate reports."""
    return re.findall(r"([\d.]+) tokens/s\)", generated.read_text(encoding="utf-8"))[-1]


def score(translated: list[str], references: list[str]) -> Score:
    """BLEU, its signature and the number of exact translations.

    Raises:
        ValueError: the numbers of translations and references differ.
    """
    if len(translated) != len(references):
        raise ValueError(f"{len(references)} test sentences but {len(translated)} translations")
    metric = BLEU()
    bleu = metric.corpus_score(translated, [references]).score
    exact = sum(ours == theirs for ours, theirs in zip(translated, references, strict=True))
    return Score(bleu, str(metric.get_signature()), exact)


def examples(sources: list[str], references: list[str], translated: list[str], count: int) -> list[str]:
    """``count`` sentences spread over the test, as lines of source, reference and hypothesis."""
    lines = []
    for index in range(0, len(sources), max(1, len(sources) // count))[:count]:
        lines += [f"  source     {sources[index]}", f"  reference  {references[index]}"]
        lines += [f"  hypothesis {translated[index]}", ""]
    return lines

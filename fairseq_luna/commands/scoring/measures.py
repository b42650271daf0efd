"""BLEU, chrF and TER of one system, all computed by sacreBLEU."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from ...usage_error import UsageError
from . import SEED, USUAL

# Sentences of newstest2014 English-German in full, and as the WMT14 organisers filtered it.
_NEWSTEST2014 = {3003, 2737}


@dataclass(frozen=True)
class Measure:
    """One score in percent, with its definition. What is None was not asked for, or is BLEU's alone."""

    name: str  # as it is printed
    score: float
    signature: str  # sacreBLEU's
    hypothesis_length: int | None = None  # in scored tokens
    reference_length: int | None = None
    brevity_penalty: float | None = None  # from 0 to 1
    matched: float | None = None  # percentage of the hypotheses' tokens that their own references have
    mean: float | None = None  # over resampled tests
    interval: float | None = None  # half of the 95 % confidence interval around the mean


@dataclass(frozen=True)
class Scores:
    """All scores of one system; ``sentences`` is the number of scored sentences."""

    sentences: int
    measures: tuple[Measure, ...]

    @property
    def bleu(self) -> Measure:
        return self.measures[0]


class Options(NamedTuple):
    """How text is scored."""

    tokenizer: str = USUAL  # of BLEU, by sacreBLEU's name
    lowercase: bool = False  # BLEU and chrF; TER is always, as sacreBLEU has it
    ter: bool = False  # whether TER is measured too
    asian: bool = False  # whether TER takes Chinese and Japanese characters for words


DEFAULTS = Options()


def bleu_of(options: Options) -> BLEU:
    """BLEU with sacreBLEU's other defaults.

    Raises:
        UsageError: the tokenizer needs a library or a model that is not there.
    """
    try:
        return BLEU(lowercase=options.lowercase, force=True, tokenize=options.tokenizer)
    except (ImportError, RuntimeError, AssertionError) as error:
        raise UsageError(f"tokenizer {options.tokenizer}: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise UsageError(f"tokenizer {options.tokenizer}: sacreBLEU cannot download its model: {error}") from error


def metrics_of(options: Options) -> dict[str, Metric]:
    """The metrics by the names that are printed, BLEU first."""
    metrics = {"sacreBLEU": bleu_of(options), "chrF2": CHRF(lowercase=options.lowercase)}
    return metrics | ({"TER": TER(normalized=options.asian, asian_support=options.asian)} if options.ter else {})


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    options: Options = DEFAULTS,
    *,
    samples: int = 1,
    seed: int = SEED,
) -> Scores:
    """Score detokenised text.

    Args:
        hypotheses: one for each line of a reference, in its order.
        references: one or several, untouched; each has a line for every hypothesis.
        samples: resampled tests, for confidence intervals; 1: none.
        seed: of the samples, above 0; sacreBLEU reads 0 as no seed.

    Raises:
        UsageError: there are no references, or the numbers of hypotheses and references differ.
    """
    for reference in references:
        check_counts(len(hypotheses), len(reference))
    with seeded(seed):
        measures = [
            measure(name, metric, hypotheses, references, samples) for name, metric in metrics_of(options).items()
        ]
    return Scores(len(hypotheses), tuple(measures))


def measure(
    name: str, metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], samples: int = 1
) -> Measure:
    """The score of ``metric``, one of sacreBLEU's."""
    found = metric.corpus_score(hypotheses, references, n_bootstrap=samples)
    of_bleu: dict[str, Any] = {}
    if isinstance(metric, BLEU):
        lengths = {"hypothesis_length": found.sys_len, "reference_length": found.ref_len}
        of_bleu = {**lengths, "brevity_penalty": found.bp, "matched": found.precisions[0]}
    spread: dict[str, Any] = {"mean": float(found._mean), "interval": float(found._ci)} if samples > 1 else {}
    return Measure(name, found.score, str(metric.get_signature()), **of_bleu, **spread)


def seeded(seed: int) -> Any:
    """A block in which sacreBLEU draws with ``seed``, for which it has no argument."""
    return patch.dict(os.environ, SACREBLEU_SEED=str(seed))


def check_counts(hypotheses: int, references: int) -> None:
    """Raises UsageError unless both numbers are equal and not 0."""
    if hypotheses != references:
        hint = ""
        if {hypotheses, references} == _NEWSTEST2014:
            hint = (
                ": newstest2014 has 3,003 sentences in full and 2,737 filtered, with other scores; "
                "translate and score the same one"
            )
        raise UsageError(f"{hypotheses:,} hypotheses but {references:,} references{hint}")
    if not references:
        raise UsageError("there are no sentences to score")

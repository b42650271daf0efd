"""BLEU, chrF and TER of one system, and the paired bootstrap of several, all computed by sacreBLEU."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from ...usage_error import UsageError
from . import SAMPLES, SEED, USUAL

# Sentences of newstest2014 English-German in full, and as the WMT14 organisers filtered it.
_NEWSTEST2014 = {3003, 2737}


@dataclass(frozen=True)
class Measure:
    """One score in percent, with its definition. Values that were not asked for, or that only BLEU has, are None."""

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


class ScoringOptions(NamedTuple):
    """Options of scoring."""

    tokenizer: str = USUAL  # of BLEU, by sacreBLEU's name
    lowercase: bool = False  # BLEU and chrF; TER is always, as sacreBLEU has it
    ter: bool = False  # whether to compute TER too
    asian: bool = False  # whether TER treats Chinese and Japanese characters as words


DEFAULTS = ScoringOptions()


def bleu_of(options: ScoringOptions) -> BLEU:
    """sacreBLEU's BLEU with these options, and its defaults otherwise.

    Raises:
        UsageError: the tokenizer needs a library or a model that is missing.
    """
    try:
        return BLEU(lowercase=options.lowercase, force=True, tokenize=options.tokenizer)
    except (ImportError, RuntimeError, AssertionError) as error:
        raise UsageError(f"tokenizer {options.tokenizer}: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise UsageError(f"tokenizer {options.tokenizer}: sacreBLEU cannot download its model: {error}") from error


def metrics_of(options: ScoringOptions) -> dict[str, Metric]:
    """sacreBLEU's metrics, by the names that are printed, BLEU first."""
    metrics = {"sacreBLEU": bleu_of(options), "chrF2": CHRF(lowercase=options.lowercase)}
    return metrics | ({"TER": TER(normalized=options.asian, asian_support=options.asian)} if options.ter else {})


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    options: ScoringOptions = DEFAULTS,
    *,
    samples: int = 1,
    seed: int = SEED,
) -> Scores:
    """Score detokenised text.

    Args:
        hypotheses: one for each line of a reference, in the same order.
        references: one or several, untouched; each has a line for every hypothesis.
        samples: number of resampled tests for confidence intervals; 1 computes none.
        seed: random seed of the samples, above 0; sacreBLEU reads 0 as no seed.

    Raises:
        UsageError: there are no references, or the numbers of hypotheses and references differ.
    """
    for reference in references:
        check_counts(len(hypotheses), len(reference))
    with sacrebleu_seed(seed):
        measures = [
            measure(name, metric, hypotheses, references, samples) for name, metric in metrics_of(options).items()
        ]
    return Scores(len(hypotheses), tuple(measures))


def measure(
    name: str, metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], samples: int = 1
) -> Measure:
    """Score with ``metric``, a metric of sacreBLEU."""
    score = metric.corpus_score(hypotheses, references, n_bootstrap=samples)
    of_bleu: dict[str, Any] = {}
    if isinstance(metric, BLEU):
        lengths = {"hypothesis_length": score.sys_len, "reference_length": score.ref_len}
        of_bleu = {**lengths, "brevity_penalty": score.bp, "matched": score.precisions[0]}
    spread: dict[str, Any] = {"mean": float(score._mean), "interval": float(score._ci)} if samples > 1 else {}
    return Measure(name, score.score, str(metric.get_signature()), **of_bleu, **spread)


def sacrebleu_seed(seed: int) -> Any:
    """Context in which sacreBLEU samples with ``seed``, for which it has no argument."""
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


class ComparedScore(NamedTuple):
    """Score of one system in a paired bootstrap, by one metric of sacreBLEU."""

    baseline: str  # the system that it is compared with; the baseline is compared with itself
    system: str
    measure: str
    score: float  # of all sentences
    mean: float  # over the resampled tests
    interval: float  # half of the 95 % confidence interval around the mean
    p: float | None  # probability of a difference as large by chance; None for the baseline
    signature: str


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    options: ScoringOptions = DEFAULTS,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[ComparedScore]:
    """Is one system significantly better than another? Compare every system with the first by each metric.

    Args:
        systems: detokenised hypotheses by name, the baseline first.
        references: one or several, untouched; each has a line for every hypothesis.
        samples: number of resampled tests.
        seed: random seed, above 0; sacreBLEU reads 0 as no seed.
    """
    with sacrebleu_seed(seed):
        metrics = dict(zip(("BLEU", "chrF", "TER"), metrics_of(options).values(), strict=False))
        test = PairedTest(list(systems.items()), metrics, references, test_type="bs", n_samples=samples)
        signatures, results = test()
    baseline = next(iter(systems))
    # sacreBLEU counts the samples whose difference is larger than the one found, which none is where all are 0.
    same = {system for system, lines in systems.items() if list(lines) == list(systems[baseline])}
    return [
        ComparedScore(
            baseline,
            system,
            measure,
            float(result.score),
            float(result.mean),
            float(result.ci),
            None if result.p_value is None else 1.0 if system in same else float(result.p_value),
            str(signatures[measure]),
        )
        for measure in signatures
        for system, result in zip(systems, results[measure], strict=True)
    ]

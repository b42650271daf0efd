"""Is one system significantly better than another? sacreBLEU's paired bootstrap."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sacrebleu.significance import PairedTest

from . import SAMPLES, SEED
from .measures import DEFAULTS, Options, metrics_of, seeded


class Compared(NamedTuple):
    """One system by one measure, by sacreBLEU's names."""

    baseline: str  # what it is compared with; itself, for the baseline
    system: str
    measure: str
    score: float  # of all sentences
    mean: float  # over the resampled tests
    interval: float  # half of the 95 % confidence interval around the mean
    p: float | None  # probability of so large a difference from the baseline by chance; None for the baseline
    signature: str


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    options: Options = DEFAULTS,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Compared]:
    """Compare every system with the first by each metric.

    Args:
        systems: detokenised hypotheses by name, the baseline first.
        references: one or several, untouched; each has a line for every hypothesis.
        samples: number of resampled tests.
        seed: above 0; sacreBLEU reads 0 as no seed.
    """
    with seeded(seed):
        metrics = dict(zip(("BLEU", "chrF", "TER"), metrics_of(options).values(), strict=False))
        test = PairedTest(list(systems.items()), metrics, references, test_type="bs", n_samples=samples)
        signatures, results = test()
    baseline = next(iter(systems))
    # sacreBLEU counts the samples whose difference is larger than the one found, which none is where all are 0.
    same = {system for system, lines in systems.items() if list(lines) == list(systems[baseline])}
    return [
        Compared(
            baseline,
            system,
            measure,
            float(found.score),
            float(found.mean),
            float(found.ci),
            None if found.p_value is None else 1.0 if system in same else float(found.p_value),
            str(signatures[measure]),
        )
        for measure in signatures
        for system, found in zip(systems, results[measure], strict=True)
    ]

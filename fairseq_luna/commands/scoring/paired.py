"""Is one system significantly better than another? sacreBLEU's paired bootstrap."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sacrebleu.metrics import CHRF
from sacrebleu.significance import PairedTest

from . import SAMPLES, SEED
from .measures import sacrebleu, seeded


class Compared(NamedTuple):
    """One system by one measure, by sacreBLEU's names."""

    system: str
    measure: str
    score: float  # of all sentences
    mean: float  # over the resampled tests
    interval: float  # half of the 95 % confidence interval around the mean
    p: float | None  # probability of so large a difference from the baseline by chance; None for the baseline
    signature: str


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
    target: str | None = None,
    lowercase: bool = False,
) -> list[Compared]:
    """Compare every system with the first by BLEU and chrF2.

    Args:
        systems: detokenised hypotheses by name, the baseline first.
        references: untouched, one for each hypothesis.
        samples: number of resampled tests.
        seed: above 0; sacreBLEU reads 0 as no seed.
        target: the language, for :func:`.measures.sacrebleu`.
        lowercase: score lower-cased text.
    """
    with seeded(seed):
        metrics = {"BLEU": sacrebleu(target, lowercase=lowercase), "chrF": CHRF(lowercase=lowercase)}
        test = PairedTest(list(systems.items()), metrics, [references], test_type="bs", n_samples=samples)
        signatures, results = test()
    return [
        Compared(
            system,
            measure,
            float(found.score),
            float(found.mean),
            float(found.ci),
            None if found.p_value is None else float(found.p_value),
            str(signatures[measure]),
        )
        for measure in signatures
        for system, found in zip(systems, results[measure], strict=True)
    ]

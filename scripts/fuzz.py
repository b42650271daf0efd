"""Train many small models with flags drawn at random; each must train, be loaded again and translate, or say why not.

    python scripts/fuzz.py --examples 5000 --seed 1

The last lines say how many did which, by which line they were refused, and the shortest example of each failure. Needs
hypothesis: pip install 'fairseq-luna[test]'.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import hypothesis

from fuzzing.configurations import Configuration, configurations
from fuzzing.outcomes import outcome
from fuzzing.report import Report

_SAID_EVERY = 250


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if args.examples < 1:
        print(f"fuzz.py: --examples {args.examples}: must be 1 or more", file=sys.stderr)
        return 2
    report, begin = Report(), time.process_time()
    try:
        fuzz(report, examples=args.examples, seed=args.seed)
    except KeyboardInterrupt:
        print("\nfuzz.py: stopped; what was seen until then:", file=sys.stderr)
    print("\n".join(report.lines()))
    print(f"{time.process_time() - begin:.0f} s of CPU for {report.examples} configurations, seed {args.seed}")
    return 1 if report.failures else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--examples", type=int, default=300, metavar="N", help="how many; default: 300")
    made.add_argument("--seed", type=int, default=1, metavar="S", help="which ones; default: 1")
    return made


def fuzz(report: Report, *, examples: int, seed: int) -> None:
    """Draw and try so many configurations, and add each to ``report``."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(configurations())
    def draw(configuration: Configuration) -> None:
        seen = outcome(configuration)
        if report.add(configuration, seen):
            print(f"{seen.line}: {configuration}", flush=True)
        if report.examples % _SAID_EVERY == 0:
            print(f"{report.examples}: {report.counts()}", flush=True)

    draw()


if __name__ == "__main__":
    sys.exit(main())

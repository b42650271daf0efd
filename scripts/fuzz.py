"""Train many small models with randomly drawn flags; each must train, be loaded again and translate, or be refused.

    python scripts/fuzz.py --examples 5000 --seed 1

The last lines count the outcomes and the messages of refusals, and show the shortest example of each failure. Needs
hypothesis: pip install 'fairseq-luna[test]'.
"""

import sys
import time
from collections.abc import Sequence

import hypothesis

from fairseq_luna.commands.command_line import Parser, command, positive
from fuzzing.configurations import Configuration, configurations
from fuzzing.outcomes import outcome
from fuzzing.report import Report

_PROGRESS_EVERY = 250


@command
def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--examples", type=positive, default=300, metavar="N", help="how many; default: 300")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default: 1")
    args = parser.parse_args(arguments)
    report, begin = Report(), time.process_time()
    try:
        fuzz(report, examples=args.examples, seed=args.seed)
    except KeyboardInterrupt:
        print("\nfuzz.py: stopped; the results so far:", file=sys.stderr)
    print("\n".join(report.lines()))
    print(f"{time.process_time() - begin:.0f} s of CPU for {report.examples} configurations, seed {args.seed}")
    return 1 if report.failures else 0


def fuzz(report: Report, *, examples: int, seed: int) -> None:
    """Draw and try this many configurations, and add each to ``report``."""

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
        if report.examples % _PROGRESS_EVERY == 0:
            print(f"{report.examples}: {report.counts()}", flush=True)

    draw()


if __name__ == "__main__":
    sys.exit(main())

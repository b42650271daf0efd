"""A report on the outcomes of many configurations."""

from collections import Counter

from fuzzing.configurations import Configuration
from fuzzing.outcomes import FAILED, REFUSED, TRAINED, Outcome, outcome


class Report:
    """Counts outcomes, and keeps the example with the fewest flags of each failure."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.smallest: dict[str, tuple[Configuration, Outcome]] = {}

    @property
    def examples(self) -> int:
        return self.kinds.total()

    def add(self, configuration: Configuration, seen: Outcome) -> bool:
        """Count an outcome; True if it is the first failure of its group."""
        self.kinds[seen.kind] += 1
        if seen.kind == REFUSED:
            self.refusals[seen.group] += 1
        if seen.kind != FAILED:
            return False
        self.failures[seen.group] += 1
        known = self.smallest.get(seen.group)
        if known is None or len(configuration.flags) < len(known[0].flags):
            self.smallest[seen.group] = configuration, seen
        return known is None

    def counts(self) -> str:
        return ", ".join(f"{self.kinds[kind]} {kind}" for kind in (TRAINED, REFUSED, FAILED))

    def lines(self) -> list[str]:
        """The refusals by their messages, each failure with its shortest example and its traceback, and the counts."""
        lines = [f"{count:6} refused: {line}" for line, count in self.refusals.most_common()]
        for group, count in self.failures.most_common():
            configuration, seen = self.smallest[group]
            lines += [
                f"{count:6} failed: {seen.line}",
                f"       for example {shortened(configuration, group)}",
                seen.trace,
            ]
        return [*lines, self.counts()]


def shortened(configuration: Configuration, group: str) -> Configuration:
    """``configuration`` without the flags that its failure, of ``group``, does not need."""
    for flag in configuration.flags:
        fewer = configuration._replace(flags=tuple(other for other in configuration.flags if other is not flag))
        if outcome(fewer).group == group:
            configuration = fewer
    return configuration

"""Reading the output of fairseq-generate or fairseq-interactive, or the file in --results-path; or plain translations.

For each sentence it has an H- line, the model's tokens, and a D- line, the text that --bpe and --tokenizer make of
them; without those flags both are equal. T- lines are the binarised reference, in which unknown words are replaced;
they only tell whether the untouched reference, which is scored against, is of this test.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ...usage_error import UsageError
from ..text_files import read_lines
from . import pieces

_LINE = re.compile(r"([HDT])-(\d+)(?:\t|$)")
_FIELDS = {"H": 3, "D": 3, "T": 2}


class Generated(NamedTuple):
    """The translations in the order of the test's sentences, pieces joined."""

    text: list[str]  # from the D- lines, or from the H- lines if there are no others
    plain: bool = False  # there are no such lines: each line is a translation
    targets: Mapping[int, str] = MappingProxyType({})  # from the T- lines, by their sentences' numbers
    doubt: str | None = None  # a warning, if it is not certain that the text is words


Content = tuple[Path, Sequence[str]]  # a file and its lines


def read_translations(
    shards: Sequence[Path], remove_bpe: str = pieces.AUTO, references: Sequence[str] = ()
) -> Generated:
    """Read one system's output, in one file or several, in any order and among lines of a log.

    Args:
        shards: files that together have every sentence once.
        remove_bpe: one of ``pieces.CHOICES``.
        references: untouched lines; what they have too is no mark of pieces.

    Files without any such line have a translation in each line, as ``fairseq-luna translate`` writes them.

    Raises:
        UsageError: no text, a sentence that is missing or repeated, an incomplete line.
        OSError: a file cannot be read.
    """
    return translations(read(shards), remove_bpe, references)


def read(files: Sequence[Path]) -> list[Content]:
    """The lines of each file, which is read once, because it may be a pipe."""
    return [(file, list(read_lines(file))) for file in files]


def translations(
    contents: Sequence[Content], remove_bpe: str = pieces.AUTO, references: Sequence[str] = ()
) -> Generated:
    """The translations in ``contents``; see :func:`read_translations`."""
    hypotheses, detokenised, targets = by_number(contents)
    named = ", ".join(str(shard) for shard, _ in contents)
    if not hypotheses and not detokenised:
        lines, doubt = pieces.join([line for _, content in contents for line in content], remove_bpe, references)
        if not any(lines):
            raise UsageError(f"{named}: has no text")
        return Generated(lines, plain=True, doubt=doubt)
    if hypotheses and detokenised and hypotheses.keys() != detokenised.keys():
        number = min(hypotheses.keys() ^ detokenised.keys())
        raise UsageError(
            f"{named}: sentence {number} has no {'D' if number in hypotheses else 'H'}- line; is it cut off?"
        )
    text, doubt = pieces.join(_in_order(detokenised or hypotheses, named), remove_bpe, references)
    joined = pieces.join(list(targets.values()), remove_bpe, references).lines
    return Generated(text, targets=dict(zip(targets, joined, strict=True)), doubt=doubt)


def sentences_in(content: Content) -> int:
    """The number of translations in a file."""
    hypotheses, detokenised, _ = by_number([content])
    return len(hypotheses.keys() | detokenised.keys()) or len(content[1])


def by_number(contents: Sequence[Content]) -> list[dict[int, str]]:
    """The unchanged H-, D- and T- lines, by their sentences' numbers; none in ordinary text.

    "T-34" and "H-2" alone on a line may be text: fairseq writes a tab after them.
    """
    kinds: dict[str, dict[int, str]] = {"H": {}, "D": {}, "T": {}}
    if not any(_LINE.match(line) and "\t" in line for _, lines in contents for line in lines):
        return list(kinds.values())
    for shard, lines in contents:
        for place, line in enumerate(lines, 1):
            mark = _LINE.match(line)
            if not mark:
                continue
            expected = _FIELDS[mark[1]]
            found, number, fields = kinds[mark[1]], int(mark[2]), line.split("\t", expected - 1)
            if len(fields) < expected:
                raise UsageError(f"{shard}, line {place}: '{line}' is cut off; translate again")
            if number in found and mark[1] != "T":  # whose hypothesis is repeated too
                raise UsageError(
                    f"{shard}, line {place}: {mark[1]}-{number} is repeated; "
                    "give each shard once, of one system, made with --nbest 1"
                )
            found[number] = fields[-1]
    return list(kinds.values())


def _in_order(found: dict[int, str], named: str) -> list[str]:
    ordered = sorted(found)
    missing = ordered[-1] + 1 - len(ordered)
    if missing:
        first = next(index for index, number in enumerate(ordered) if index != number)
        more = f" and {missing - 1:,} more" if missing > 1 else ""
        raise UsageError(
            f"{named}: sentence {first}{more} of {ordered[-1] + 1:,} missing; give all shards, translated "
            "without --skip-invalid-size-inputs-valid-test and with --user-dir"
        )
    return [found[number] for number in ordered]

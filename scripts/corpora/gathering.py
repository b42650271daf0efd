"""The texts of a published corpus, of which some are SGML, and the number of sentences of each."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from corpora.catalogue import LANGUAGES, Split
from corpora.sgml import read_segments
from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.preparing import gathering
from fairseq_luna.commands.text_files import in_step, read_pairs


def gather(
    splits: Iterable[Split],
    texts: dict[str, list[tuple[Path, Path]]],
    folder: Path,
    *,
    hold_out: int,
    languages: Sequence[str] = LANGUAGES,
) -> None:
    """See :mod:`fairseq_luna.commands.preparing.gathering`.

    Raises:
        UsageError: a text cannot be used, or a split has a wrong number of sentences.
    """
    train = gathering.check(texts, hold_out=hold_out, read=_pairs_of)
    written = gathering.gather(texts, folder, train=train, hold_out=hold_out, languages=languages, read=_pairs_of)
    for split in splits:
        if split.name in written:
            _check(split, written[split.name])


def _pairs_of(english: Path, german: Path) -> Iterator[tuple[str, str]]:
    if ".sgm" not in english.suffixes:
        return read_pairs(english, german)
    ours, theirs = read_segments(english), read_segments(german)
    pairs = list(in_step((segment.text for segment in ours), (segment.text for segment in theirs), english, german))
    if [segment.number for segment in ours] != [segment.number for segment in theirs]:
        raise CommandError(f"{english} and {german} number their segments differently: they are not a parallel text")
    return iter(pairs)


def _check(split: Split, sentences: int) -> None:
    if split.sentences in (None, sentences):
        return
    wrong, explanation = split.hint or (None, "")
    reason = f"; {explanation}" if sentences == wrong else ""
    raise CommandError(f"{split.name}: {sentences:,} sentences where {split.sentences:,} are expected{reason}")

"""Which files are parts of one system's translations, and which are systems of their own."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ...usage_error import UsageError
from . import generated, pieces
from .generated import Content, Generated


def read_systems(
    groups: Iterable[Sequence[Path]],
    references: Sequence[Sequence[str]],
    remove_bpe: str = pieces.AUTO,
    others: Iterable[str] = (),
) -> dict[str, Generated]:
    """The systems in each group of files, by the name of their first file.

    Several files of a group are the parts of one system, unless each has as many translations as a reference.

    Args:
        groups: files that are given together.
        references: the lines of each.
        remove_bpe: one of ``pieces.CHOICES``.
        others: the names of systems that are given elsewhere.

    Raises:
        UsageError: a file cannot be read as translations, is given as two systems, or is neither one nor a part.
    """
    untouched = [line for reference in references for line in reference]
    found: dict[str, Generated] = {}
    places = {Path(other).resolve() for other in others}  # a file may be given by two names
    for group in groups:
        for contents in split(generated.read(group), len(references[0])):
            first = contents[0][0]
            if first.resolve() in places:
                raise UsageError(f"{first} is given as two systems")
            places.add(first.resolve())
            found[str(first)] = generated.translations(contents, remove_bpe, untouched)
    return found


def split(contents: Sequence[Content], sentences: int) -> list[Sequence[Content]]:
    """The files of each system.

    Raises:
        UsageError: some files have as many translations as a reference, others do not.
    """
    counts = [generated.sentences_in(content) for content in contents]
    if len(contents) == 1 or sentences not in counts:
        return [contents]
    if set(counts) != {sentences}:
        named = ", ".join(
            f"{file} has {count:,} translations" for (file, _), count in zip(contents, counts, strict=True)
        )
        raise UsageError(
            f"{named}, and the reference has {sentences:,} lines: give systems with all of them, or the parts of one"
        )
    return [[content] for content in contents]

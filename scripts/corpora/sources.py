"""Finding the text of a split in the user's folder, or downloading it."""

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from corpora.archives import extract
from corpora.catalogue import LANGUAGES, Part, Remote, Split
from corpora.download import download
from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.steps import once


class File(NamedTuple):
    """One side of a parallel text: a file, or ``member`` of a tar."""

    path: Path
    member: str | None = None


class Text(NamedTuple):
    """Both sides."""

    en: File
    de: File


def find(split: Split, folder: Path) -> tuple[list[Text], list[str]]:
    """The split's texts in ``folder``, and descriptions of the missing ones.

    Plain or gzipped files named after the split are the whole split; otherwise each part is searched for, as the
    published file or as its extracted members.
    """
    for stem in split.stems:
        whole = [existing(folder, f"{stem}.{language}") for language in LANGUAGES]
        if all(whole):
            return [Text(*(File(path) for path in whole if path))], []
    found = [(part, _find_part(part, folder)) for part in split.parts]
    lacking = [_wanted(split, part) for part, text in found if text is None]
    return [text for _, text in found if text], lacking


def _find_part(part: Part, folder: Path) -> Text | None:
    for source in part.sources:
        published = [(folder / place.remote.name, place.member) for place in source]
        extracted = [_extracted(folder, member) for _, member in published]
        if all(extracted):
            return Text(*(File(path) for path in extracted if path))
        if all(path.exists() for path, _ in published):
            return Text(*(File(path, member) for path, member in published))
    return None


def _extracted(folder: Path, member: str | None) -> Path | None:
    names = [] if member is None else [member, PurePosixPath(member).name]
    return next(filter(None, (existing(folder, name) for name in names)), None)


def existing(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _wanted(split: Split, part: Part) -> str:
    published = dict.fromkeys(place.remote.name for source in part.sources for place in source)
    stem = split.stems[0]
    return f"{part.title} ({' or '.join(published)}, or {stem}.en and {stem}.de)"


def missing_remotes(split: Split, downloads: Path) -> list[Remote]:
    """The files that :func:`fetch` would download if every first source works."""
    remotes = dict.fromkeys(place.remote for part in split.parts for place in part.sources[0])
    return [remote for remote in remotes if not (downloads / remote.name).exists()]


def fetch(split: Split, downloads: Path) -> list[Text]:
    """Download the missing files, each part from its first source that works."""
    return [_fetch_part(part, downloads) for part in split.parts]


def _fetch_part(part: Part, downloads: Path) -> Text:
    failures = []
    for source in part.sources:
        try:
            return Text(*(File(download(place.remote, downloads), place.member) for place in source))
        except CommandError as failure:
            failures.append(str(failure))
    raise CommandError(f"{part.title}: {failures[0]}")


def unpack(text: Text, folder: Path) -> tuple[Path, Path]:
    """Both sides as plain files, extracted from their archive if they are in one."""
    english, german = text
    if english.member is None or german.member is None:
        return english.path, german.path
    target = folder / english.path.name
    wanted = (english.member, german.member)
    once(f"text of {english.path.name}", target, lambda unfinished: extract(english.path, wanted, unfinished))
    return target / PurePosixPath(english.member).name, target / PurePosixPath(german.member).name

"""An output folder has one set of settings."""

from pathlib import Path

import pytest

from corpora.settings import FILE, check, keep
from shared.command import CommandError


def test_the_same_settings_are_accepted(tmp_path: Path) -> None:
    wanted = {"--bpe": "sentencepiece", "rules": {"ratio": 1.5}, "corpus": ("a", "b")}
    for _ in range(2):
        check(tmp_path / "out", wanted)
        keep(tmp_path / "out", wanted)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [FILE]


@pytest.mark.parametrize(("name", "value"), [("--bpe", "subword-nmt"), ("size", 9), ("new", None)])
def test_other_settings_are_refused_by_name(tmp_path: Path, name: str, value: object) -> None:
    begun = {"--bpe": "sentencepiece", "size": 8, "new": 1}
    keep(tmp_path, begun)
    (tmp_path / "joint.model").touch()
    with pytest.raises(CommandError, match=f"was made with {name} .*: use another --out"):
        check(tmp_path, {**begun, name: value})
    check(tmp_path, begun)


@pytest.mark.parametrize("made", ["codes", "work/sentencepiece"])
def test_another_size_is_accepted_until_there_are_pieces(tmp_path: Path, made: str) -> None:
    keep(tmp_path, {"size": 8})
    check(tmp_path, {"size": 9})
    (tmp_path / made).mkdir(parents=True)
    with pytest.raises(CommandError, match="was made with size 8, not 9"):
        check(tmp_path, {"size": 9})


def test_an_unreadable_record_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(CommandError, match="unreadable"):
        check(tmp_path, {"size": 8})
    assert (tmp_path / FILE).read_text() == "{"

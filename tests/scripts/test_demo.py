"""The demo's refusals, what it reuses, and a short run from nothing to a score."""

import subprocess
import sys
from pathlib import Path

import pytest

import demo
from demo_corpus import corpus
from demo_training import steps
from demo_training.recipes import RECIPES
from pasted import paste

DEMO = Path(demo.__file__)


@pytest.mark.parametrize("flags", [("--arch", "lune_tiny"), ("--max-update", "0")])
def test_bad_flags_are_refused_in_one_line(flags: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(flags) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith(f"demo.py: argument {flags[0]}: ")
    assert flags[1] in line


@pytest.mark.parametrize(
    ("arch", "name", "said"),
    [("luna_tiny", "softmax", "is for --arch mixed_tiny"), ("mixed_tiny", "lineer", "choose one of softmax, ")],
)
def test_an_attention_that_cannot_be_trained_is_refused_in_one_line(arch, name, said, capsys) -> None:
    assert demo.main(["--arch", arch, "--attention", name]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"demo.py: --attention {name}: {said}")


@pytest.mark.slow
@pytest.mark.parametrize("arch", RECIPES)
def test_a_short_demo_runs_to_the_end_and_then_reuses_everything(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, str(DEMO), "--arch", arch, "--folder", "kept", "--max-update", "3"]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "sacreBLEU" in first.stdout
    assert "on 500 held-out sentences" in first.stdout
    checkpoint = tmp_path / "kept" / f"{arch}-3-updates-seed-1" / "checkpoint_last.pt"
    assert checkpoint.exists()
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert second.stdout.count(": reusing ") == 5
    assert ": making " not in second.stdout
    monkeypatch.chdir(tmp_path)
    if arch == "luna_tiny":
        assert "\nD-0\t" in paste(second.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("patched", "said"),
    [
        ((corpus, "SIZES", {"train": 9, "valid": 3, "test": 3}), "--folder {folder} was made with corpus "),
        ((steps, "VOCABULARY", 999), "--folder {folder} was made with vocabulary 1600, not 999"),
        ((demo, "RECIPES", {"luna_tiny": ("--lr", "1")}), "-3-updates-seed-1 was made with flags "),
    ],
    ids=["corpus", "vocabulary", "flags"],
)
def test_what_was_made_of_another_recipe_is_not_reused(
    patched: tuple[object, str, object], said: str, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_what: str, _target: Path, _make: object) -> None:
        raise KeyboardInterrupt

    flags = ["--arch", "luna_tiny", "--folder", str(tmp_path), "--max-update", "3"]
    monkeypatch.setattr(demo, "once", stop)
    assert demo.main(flags) == 130
    monkeypatch.setattr(*patched)
    capsys.readouterr()
    assert demo.main(flags) == 2
    assert said.format(folder=tmp_path) in capsys.readouterr().err

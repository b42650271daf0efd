"""The runner: what it refuses, what it reuses, and one short demo from nothing to a score."""

import subprocess
import sys
from pathlib import Path

import pytest

import demo
import demo_score
from demo_training.recipes import RECIPES

DEMO = Path(demo.__file__)


def test_an_unknown_arch_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "--arch", "lune_tiny"])
    assert demo.main() == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"demo.py: --arch lune_tiny: the demo has recipes for {', '.join(RECIPES)}\n"


def test_no_updates_are_refused_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "--max-update", "0"])
    assert demo.main() == 2
    assert capsys.readouterr().err == "demo.py: --max-update 0: at least 1 is needed\n"


def test_hypotheses_come_in_the_order_of_the_sentences(tmp_path: Path) -> None:
    generated = tmp_path / "generated"
    generated.write_text("S-1\tc d\nH-1\t-0.1\tC D.\nP-1\t-0.1\nH-10\t-0.3\tZ.\nH-0\t-0.2\tA B.\n")
    assert demo_score.hypotheses(generated) == ["A B.", "C D.", "Z."]


def test_the_score_says_what_it_is() -> None:
    text = ["Der alte Lehrer ruft mich am Montag an.", "Das Buch ist neu."]
    result = demo_score.score(text, text)
    assert result.bleu == pytest.approx(100)
    assert result.exact == 2
    assert "tok:13a" in result.signature


def test_a_missing_translation_is_not_scored_over() -> None:
    with pytest.raises(ValueError, match="2 test sentences but 1 translations"):
        demo_score.score(["Ja."], ["Ja.", "Nein."])


@pytest.mark.slow
@pytest.mark.parametrize("arch", RECIPES)
def test_a_short_demo_runs_to_the_end_and_then_reuses_everything(arch: str, tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--arch", arch, "--folder", "kept", "--max-update", "3"]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "sacreBLEU" in first.stdout
    assert "on 500 held-out sentences" in first.stdout
    checkpoint = tmp_path / "kept" / f"{arch}-3-updates-seed-1" / "checkpoint_last.pt"
    assert checkpoint.exists()
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert second.stdout.count("reusing") == 5
    assert "making" not in second.stdout

"""The demo's refusals, what it reuses, and a short run from nothing to a score."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import demo
from pasted import paste

DEMO = Path(demo.__file__)


@pytest.mark.parametrize("flags", [("--arch", "lune_tiny"), ("--max-update", "0")])
def test_bad_flags_are_refused_in_one_line(flags, capsys):
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
def test_an_attention_that_cannot_be_trained_is_refused_in_one_line(arch, name, said, capsys):
    assert demo.main(["--arch", arch, "--attention", name]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"demo.py: --attention {name}: {said}")


def test_a_folder_of_other_flags_is_not_trained_on(tmp_path):
    demo.keep_command(tmp_path, "--lr 1")
    demo.keep_command(tmp_path, "--lr 1")
    with pytest.raises(demo.CommandError, match=r"flags\.txt: use another --folder"):
        demo.keep_command(tmp_path, "--lr 2")


def test_progress_is_shortened(capsys):
    demo.show_progress(
        "2026 | INFO | train_inner | epoch 001:  100 / 900 loss=5.1, ppl=9, wps=812, ups=2, num_updates=100"
    )
    demo.show_progress("2026 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 4.2 | ppl 8.7 | wps 9")
    demo.show_progress("2026 | INFO | fairseq.tasks | [en] dictionary: 1600 types")
    assert capsys.readouterr().out.splitlines() == [
        "  update   100: loss 5.1, 812 target tokens a second",
        "  perplexity of the validation set 8.7",
    ]


def programs(ended):
    """The programs of the commands that were shown."""
    return [Path(shlex.split(line)[1]).name for line in ended.stdout.splitlines() if line.startswith("$ ")]


@pytest.mark.slow
@pytest.mark.parametrize("arch", demo.ARCHITECTURES)
def test_a_short_demo_runs_to_the_end_and_then_reuses_everything(arch, tmp_path, monkeypatch):
    command = [sys.executable, str(DEMO), "--arch", arch, "--folder", "kept", "--max-update", "3"]
    ran = [subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False) for _ in range(2)]
    first, second = ran
    assert first.returncode == 0, first.stdout + first.stderr
    assert programs(first)[1:] == ["fairseq-luna", "fairseq-train", "fairseq-generate", "fairseq-luna"]
    assert "BLEU" in first.stdout
    assert "of 500 translations are the reference" in first.stdout
    assert (tmp_path / "kept" / f"{arch}-3-updates-seed-1" / "checkpoint_last.pt").exists()
    assert second.returncode == 0, second.stdout + second.stderr
    assert programs(second)[1:] == ["fairseq-luna", "fairseq-luna"]
    if arch == "luna_tiny":
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        line = [line for line in second.stdout.splitlines() if "fairseq-luna translate" in line][-1]
        assert len(paste(line.strip()).splitlines()) == 1

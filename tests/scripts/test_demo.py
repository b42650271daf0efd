"""The demo's refusals, what it reuses, and a short run from nothing to a score."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import demo
from pasted import paste
from recipes import build, of_flags, write_dictionaries

DEMO = Path(demo.__file__)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--arch", "lune_tiny"), "argument --arch: invalid choice: 'lune_tiny'"),
        (("--max-update", "0"), "argument --max-update: '0' must be"),
        (("--attention", "softmax"), "--attention softmax: is for --arch mixed_tiny"),
        (("--arch", "mixed_tiny", "--attention", "lineer"), "--attention lineer: choose one of softmax, "),
    ],
)
def test_bad_flags_are_refused_in_one_line(flags, said, capsys):
    assert demo.main(flags) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert shown.err.startswith(f"demo.py: {said}")


def test_a_folder_of_other_flags_is_not_trained_on(tmp_path):
    demo.keep_command(tmp_path, "--lr 1")
    demo.keep_command(tmp_path, "--lr 1")
    with pytest.raises(demo.CommandError, match=r"flags\.txt: use another --folder"):
        demo.keep_command(tmp_path, "--lr 2")


def test_progress_is_shortened(capsys):
    demo.show_progress("2026 | INFO | train_inner | epoch 001: 100 / 900 loss=5.1, ppl=9, wps=812, num_updates=100")
    demo.show_progress("2026 | INFO | fairseq.tasks | [en] dictionary: 1600 types")
    assert capsys.readouterr().out == "  update   100: loss 5.1, 812 target tokens a second\n"


@pytest.mark.parametrize("arch", demo.ARCHITECTURES)
def test_every_architecture_is_one_of_fairseqs_or_ours(arch, tmp_path):
    write_dictionaries(tmp_path, 40, "dict.en.txt", "dict.de.txt")
    flags = (demo.ARCHITECTURES[arch], demo.RECIPE, "-s en -t de --total-num-update 3")
    model, _ = build(of_flags(tmp_path, *(flag for some in flags for flag in shlex.split(some))))
    assert model.encoder.layers[0].normalize_before


def programs(ended):
    """The programs of the commands that were shown."""
    return [Path(shlex.split(line)[1]).name for line in ended.stdout.splitlines() if line.startswith("$ ")]


@pytest.mark.slow
def test_a_short_demo_runs_to_the_end_and_then_reuses_everything(tmp_path, monkeypatch):
    command = [sys.executable, str(DEMO), "--folder", "kept", "--max-update", "3"]
    first, second = (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False) for _ in range(2)
    )
    assert first.returncode == 0, first.stdout + first.stderr
    assert programs(first)[1:] == ["fairseq-luna", "fairseq-train", "fairseq-generate", "fairseq-luna"]
    assert "  perplexity of the validation set " in first.stdout and "BLEU" in first.stdout
    assert "of 500 translations are the reference" in first.stdout
    assert (tmp_path / "kept" / "luna_tiny-3-updates-seed-1" / "checkpoint_last.pt").exists()
    assert second.returncode == 0, second.stdout + second.stderr
    assert programs(second)[1:] == ["fairseq-luna", "fairseq-luna"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    line = [line for line in second.stdout.splitlines() if "fairseq-luna translate" in line][-1]
    assert len(paste(line.strip()).splitlines()) == 1

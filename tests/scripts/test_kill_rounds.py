"""A killed and resumed training equals the uninterrupted one; differences are found."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kill_rounds
from fairseq_luna.usage_error import UsageError
from kill_rounds import Reference
from kills import moments
from kills.moments import Start
from shared import small_training

SCRIPT = Path(kill_rounds.__file__)
RECORD = '2026-01-01 00:00:00 | INFO | train_inner | {{"num_updates": "{update}", "loss": "{loss}", "wps": "7"}}\n'


def test_no_rounds_are_refused_in_one_line(capsys):
    assert kill_rounds.main(["--rounds", "0"]) == 2
    assert capsys.readouterr().err == "kill_rounds.py: argument --rounds: '0' must be a whole number of 1 or more\n"


def reference(**losses):
    text = "".join(RECORD.format(update=update[1:], loss=loss) for update, loss in losses.items())
    return Reference({}, small_training.logged(text), 1.0)


def test_a_correct_resume_is_accepted():
    text = RECORD.format(update=4, loss="2.5").replace('"7"', '"8"')  # the speed may differ
    kill_rounds.check_start(Start(False, "", text), 3, reference(u3="3", u4="2.5"))


@pytest.mark.parametrize(("update", "loss", "said"), [(4, "2.6", "train_inner 4"), (5, "2.5", "resumed with update 5")])
def test_a_different_loss_or_a_skipped_update_is_found(update, loss, said):
    start = Start(False, "", RECORD.format(update=update, loss=loss))
    with pytest.raises(UsageError, match=said):
        kill_rounds.check_start(start, 3, reference(u4="2.5", u5="2.5"))


def test_a_damaged_last_checkpoint_is_found(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    assert kill_rounds.updates_kept(last) == 0
    last.write_bytes(b"half")
    with pytest.raises(UsageError, match=r"checkpoint_last\.pt cannot be read any more"):
        kill_rounds.updates_kept(last)


@pytest.mark.parametrize("before", [0, 27, small_training.MAX_UPDATE])
def test_kills_are_spread_over_the_remaining_updates(before):
    draw = random.Random(1)
    drawn = [moments.draw_moment(draw, before, 0.5) for _ in range(1000)]
    left = set(range(before + 1, small_training.MAX_UPDATE + 1)) or {small_training.MAX_UPDATE}
    assert {moment.update for moment in drawn} == left
    assert {moment.aim for moment in drawn} == {"anywhere", "writing", "copying"}
    assert all(0 <= moment.after <= 0.5 for moment in drawn)


@pytest.mark.parametrize(
    ("left_behind", "log", "where"),
    [
        ({"checkpoint_1_3.pt.tmp"}, RECORD, "writing a checkpoint"),
        ({"checkpoint_last.pt.tmp"}, RECORD, "copying a checkpoint"),
        (set(), RECORD, "between saves"),
        (set(), "", "starting"),
    ],
)
def test_the_place_of_a_kill_is_found(left_behind, log, where):
    files = {(name, 1) for name in left_behind}
    assert moments.place(files, log.format(update=4, loss="2.5") if log else "") == where


def test_an_incomplete_line_of_a_killed_process_is_skipped():
    text = RECORD.format(update=4, loss="2.5") + RECORD.format(update=5, loss="2.5")[:-20]
    assert list(small_training.logged(text)) == [("train_inner", "4")]


def test_one_differing_bit_is_found():
    ours, theirs = {"w": torch.ones(3), "n": 1}, {"w": torch.ones(3), "n": 1}
    assert small_training.differing(ours, theirs) == []
    theirs["w"][1] = torch.nextafter(theirs["w"][1], torch.tensor(2.0))
    assert small_training.differing(ours, {**theirs, "more": 0}) == ["more", "w"]


@pytest.mark.slow
def test_a_training_survives_kills():
    command = [sys.executable, str(SCRIPT), "--rounds", "2", "--seed", "3", "--arch", "luna_tiny"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.splitlines()[-1].startswith("luna_tiny: 2 kills survived")

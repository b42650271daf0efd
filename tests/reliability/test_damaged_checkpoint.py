"""If a crash has damaged the last checkpoint, the line names another one, and training continues from that."""

import re

import pytest
import torch

from commands import APOLLO, FAMILIES, USER_DIR, train
from fairseq_luna.compat import checkpoints
from reliability.refusal import fingerprint, refusal

FLAGS = (*FAMILIES["luna"], *APOLLO, "--disable-validation")


@pytest.mark.parametrize("kept", [0.0, 0.7], ids=["empty", "truncated"])
def test_the_previous_one_is_named_and_usable(tiny_data, tmp_path, capsys, kept):
    saving = ("--save-interval-updates=2", "--keep-interval-updates=1")
    last = train(tiny_data, tmp_path, *FLAGS, *saving, "--max-update=3")
    whole = last.read_bytes()
    last.write_bytes(whole[: int(kept * len(whole))])
    before = fingerprint(tmp_path)

    fixed = (tiny_data, f"--user-dir={USER_DIR}", f"--save-dir={tmp_path}", "--cpu", "--num-workers=0")
    line = refusal(capsys, "train", *fixed, "--batch-size=8", *FLAGS, "--max-update=5")
    assert line.startswith(f"fairseq_luna: error: {last} is not a fairseq checkpoint or is damaged")
    assert fingerprint(tmp_path) == before

    named = re.search(r"such as (\S+), with --restore-file", line)[1]
    assert re.fullmatch(r"checkpoint_\d+_2\.pt", named.removeprefix(f"{tmp_path}/"))
    train(tiny_data, tmp_path, *FLAGS, "--max-update=5", f"--restore-file={named}")
    state = torch.load(last, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 5


def test_no_other_damaged_one_is_named(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(b"")
    (tmp_path / "checkpoint3.pt").write_bytes(b"cut")
    assert checkpoints.another(last) is None
    torch.save({}, tmp_path / "checkpoint2.pt")
    assert checkpoints.another(last) == tmp_path / "checkpoint2.pt"

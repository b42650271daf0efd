"""A training that is killed and resumed equals the uninterrupted one; differences are found.

KILLS=20 makes so many kills of each family: KILLS=20 KILLS_SEED=1 python -m pytest -s tests/reliability/test_kills.py
"""

import os

import pytest
import torch

import small_training
from harness import kills

FEATURES = ("--encoder-self-attention=rfa", "--decoder-self-attention=performer", "--redraw-features=4")
RUNS = {"luna_tiny": (), "fastformer_tiny": (), "block_tiny": (), "mixed_tiny": FEATURES}
RECORD = '2026-01-01 00:00:00 | INFO | train_inner | {{"num_updates": "{update}", "loss": "{loss}", "wps": "7"}}\n'


@pytest.mark.slow
@pytest.mark.parametrize("arch", RUNS if "KILLS" in os.environ else ["luna_tiny"])
def test_a_training_survives_kills(arch, tmp_path):
    rounds, seed = int(os.environ.get("KILLS", 2)), int(os.environ.get("KILLS_SEED", 3))
    kills.kill_rounds(tmp_path, arch, rounds, seed, RUNS[arch])


@pytest.mark.parametrize(
    ("update", "loss", "said"), [(4, "2.6", "2.6"), (5, "2.5", "resumed with update 5"), (4, 2.5, "")]
)
def test_a_different_loss_or_a_skipped_update_is_found(update, loss, said):
    whole = small_training.logged("".join(RECORD.format(update=n, loss=2.5) for n in (4, 5)))
    log = RECORD.format(update=update, loss=loss).replace('"7"', '"8"')  # the speed may differ
    cut = log + RECORD.format(update=update + 1, loss=loss)[:-20]  # of a killed process
    reference = kills.Reference({}, whole, 1.0)
    if said:
        with pytest.raises(AssertionError, match=said):
            kills.check_log(cut, 3, reference)
    else:
        kills.check_log(cut, 3, reference)


def test_one_differing_bit_is_found():
    ours, theirs = {"w": torch.ones(3), "n": 1}, {"w": torch.ones(3), "n": 1}
    assert small_training.differing(ours, theirs) == []
    theirs["w"][1] = torch.nextafter(theirs["w"][1], torch.tensor(2.0))
    assert small_training.differing(ours, {**theirs, "more": 0}) == ["more", "w"]

"""A stopped and resumed run equals an uninterrupted one bit for bit: losses, rates and all state.

It stops within the warm-up, and between the milestones at the end of an epoch.
"""

import pytest

from commands import APOLLO, FAMILIES, SIZES, TRANSFORMER, train
from small_training import differing, outcome, updates

# The directions of performer are drawn again at the stops and between them, and rfa picks its own at every update.
RANDOM_FEATURES = ("--encoder-self-attention=rfa", "--decoder-self-attention=performer", "--redraw-features=4")
CLIPPED = ("--memory-efficient-fp16", "--fp16-init-scale=4", "--apollo-clip-mode=each", "--clip-norm=0.1")
RUNS = {
    **{family: (*FAMILIES[family], *APOLLO) for family in ("luna", "fastformer", "block")},
    "random-features": ("--arch=mixed_tiny", *RANDOM_FEATURES, *SIZES, *APOLLO),
    "half-precision": (*FAMILIES["luna"], *APOLLO, *CLIPPED),
    "fairseq's-own": (*TRANSFORMER, "--lr-scheduler=inverse_sqrt", "--warmup-updates=6"),
}
# The recipe warms up to update 6 and cuts the rate at 14 and 18; an epoch has 8 updates.
STOPS = (4, 16, 20)


@pytest.mark.parametrize("flags", RUNS.values(), ids=RUNS)
def test_stopped_twice_is_bit_identical(tiny_data, tmp_path, caplog, flags):
    caplog.set_level("INFO")
    flags = (*flags, "--log-format=json", "--log-interval=1")
    whole = train(tiny_data, tmp_path / "whole", *flags, f"--max-update={STOPS[-1]}")
    expected = updates(caplog)
    for stop in STOPS:
        resumed = train(tiny_data, tmp_path / "stopped", *flags, f"--max-update={stop}")

    found = updates(caplog)
    assert [each["num_updates"] for each in found] == [str(update + 1) for update in range(STOPS[-1])]
    assert found == expected
    assert len({each["lr"] for each in found}) >= 8  # six of the warm-up, one after each milestone
    # Each stop validates once more, and that validation may have the best loss.
    different = differing(outcome(resumed), outcome(whole))
    assert {*different} <= {"/best", "/now/lr_scheduler_state/best"}

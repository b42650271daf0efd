"""The mends as a set: which are applied to which fairseq, once, and with one logged line each."""

import logging
from importlib import metadata

import pytest

from fairseq_luna import host
from fairseq_luna.host.mend import Mend

LATER_FAIRSEQ = "fairseq-fixed" in {dist.metadata["Name"] for dist in metadata.distributions()}
ONLY_LATER = {"last-batch", "resume"}


def test_mends_are_applied_where_the_host_is_at_fault_only():
    needed = {result.name for result in host.apply() if result.needed}
    always = {mend.name for mend in host.MENDS} - ONLY_LATER
    assert needed == (always | ONLY_LATER if LATER_FAIRSEQ else always)


def test_applying_again_changes_nothing():
    from fairseq.data import data_utils

    mended = data_utils.batch_by_size
    assert host.apply() is host.apply()
    assert data_utils.batch_by_size is mended


@pytest.mark.parametrize("needed", [True, False])
def test_one_line_is_logged_when_a_mend_is_applied(needed, caplog):
    applied = []
    mend = Mend("example", lambda: needed, lambda: applied.append("example"), "what it does")
    with caplog.at_level(logging.INFO):
        result = host._apply(mend)
    assert result == ("example", needed, "what it does")
    assert applied == ["example"] * needed
    assert [record.getMessage() for record in caplog.records] == ["host mend example: what it does"] * needed


@pytest.mark.parametrize("mend", [m for m in host.MENDS if m.name in ("checkpoints", "last-batch")])
def test_probe_finds_nothing_after_the_mend(mend):
    assert not mend.probe()

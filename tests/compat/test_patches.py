"""The patches as a set."""

import pytest
from fairseq.data import data_utils

from fairseq_luna import compat
from fairseq_luna.compat.patch import Patch


def test_applying_again_changes_nothing():
    first = compat.apply_patches()
    patched = data_utils.batch_by_size
    assert compat.apply_patches() is first
    assert data_utils.batch_by_size is patched


@pytest.mark.parametrize("needed", [True, False])
def test_a_patch_is_applied_if_its_probe_finds_the_fault(needed):
    applied = []
    patch = Patch("example", lambda: needed, lambda: applied.append("example"), "what it does")
    assert compat._apply(patch) == ("example", needed, "what it does")
    assert applied == ["example"] * needed

"""The patches as a set: which are applied to which fairseq, and only once."""

from importlib import metadata

import pytest

from fairseq_luna import compat
from fairseq_luna.compat.patch import Patch

LATER_FAIRSEQ = "fairseq-fixed" in {dist.metadata["Name"] for dist in metadata.distributions()}
ONLY_LATER = {"last-batch", "resume"}


def test_patches_are_applied_only_where_fairseq_has_the_fault():
    applied = {result.name for result in compat.apply_patches() if result.applied}
    always = {patch.name for patch in compat.PATCHES} - ONLY_LATER
    assert applied == (always | ONLY_LATER if LATER_FAIRSEQ else always)


def test_applying_again_changes_nothing():
    from fairseq.data import data_utils

    patched = data_utils.batch_by_size
    assert compat.apply_patches() is compat.apply_patches()
    assert data_utils.batch_by_size is patched


@pytest.mark.parametrize("needed", [True, False])
def test_a_patch_is_applied_if_its_probe_finds_the_fault(needed):
    applied = []
    patch = Patch("example", lambda: needed, lambda: applied.append("example"), "what it does")
    assert compat._apply(patch) == ("example", needed, "what it does")
    assert applied == ["example"] * needed


@pytest.mark.parametrize("patch", [p for p in compat.PATCHES if p.name in ("checkpoints", "last-batch")])
def test_probe_finds_nothing_after_the_patch(patch):
    assert not patch.is_needed()

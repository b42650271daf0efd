"""The patches as a set."""

from fairseq.data import data_utils

from fairseq_luna import compat
from fairseq_luna.compat.patch import Patch


def test_applying_again_changes_nothing():
    first = compat.apply_patches()
    patched = data_utils.batch_by_size
    assert compat.apply_patches() is first
    assert data_utils.batch_by_size is patched


def test_only_needed_patches_are_applied_and_only_after_all_probes(monkeypatch):
    calls = []

    def example(name, needed):
        return Patch(name, lambda: calls.append(f"probe {name}") or needed, lambda: calls.append(name), "summary")

    monkeypatch.setattr(compat, "PATCHES", (example("a", True), example("b", False), example("c", True)))
    results = compat.apply_patches.__wrapped__()
    assert results == (("a", True, "summary"), ("b", False, "summary"), ("c", True, "summary"))
    assert calls == ["probe a", "probe b", "probe c", "a", "c"]

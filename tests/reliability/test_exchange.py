"""A checkpoint that another Python, fairseq and torch wrote translates the same, and its training resumes.

WRITE_CHECKPOINTS=FOLDER keeps those of this environment; READ_CHECKPOINTS=FOLDER:FOLDER reads those of others. See
noxfile.py.
"""

import os
from pathlib import Path

import pytest

from harness import exchange

WRITTEN = {"H-0": (-0.5, "w1 w2"), "H-1": (-1.25, "w3")}
OTHERS = [Path(folder) for folder in os.environ.get("READ_CHECKPOINTS", "").split(os.pathsep) if folder]
KEPT = os.environ.get("WRITE_CHECKPOINTS")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["luna_tiny", "fastformer_tiny", "block_tiny"] if OTHERS or KEPT else ["luna_tiny"])
def test_a_written_checkpoint_is_read_and_its_training_resumed(arch, tmp_path):
    here = Path(KEPT or tmp_path / "written")
    if not OTHERS:
        exchange.write(here, arch)
    for number, folder in enumerate(OTHERS or [here]):
        exchange.read(folder, arch, tmp_path / str(number))


@pytest.mark.parametrize("here", [{**WRITTEN, "H-1": (-1.25, "w4")}, {**WRITTEN, "H-0": (-0.51, "w1 w2")}, {}])
def test_a_difference_is_found(here):
    exchange.compare(WRITTEN, {"H-0": (-0.501, "w1 w2"), "H-1": (-1.249, "w3")})  # rounding
    with pytest.raises(AssertionError):
        exchange.compare(WRITTEN, here)

"""A checkpoint that another Python, fairseq and torch wrote translates the same, and its training resumes.

WRITE_CHECKPOINTS=FOLDER keeps those of this environment; READ_CHECKPOINTS=FOLDER:FOLDER reads those of others. See
noxfile.py.
"""

import io
import json
import os
import re
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from commands import APOLLO, FAMILIES, generate, train
from tiny_training import make_data

OTHERS = [Path(folder) for folder in os.environ.get("READ_CHECKPOINTS", "").split(os.pathsep) if folder]
KEPT = os.environ.get("WRITE_CHECKPOINTS")
CLOSE = 2e-3  # fairseq-generate prints scores with four decimals


def hypotheses(data, checkpoint):
    """Score and words of each sentence."""
    with redirect_stdout(io.StringIO()) as printed:
        generate(data, str(checkpoint), "--beam=2")
    found = re.findall(r"^(H-\d+)\t(\S+)\t(.*)$", printed.getvalue(), flags=re.M)
    return {number: [float(score), words] for number, score, words in found}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["luna", "fastformer", "block"] if OTHERS or KEPT else ["luna"])
def test_a_written_checkpoint_is_read_and_its_training_resumed(family, tmp_path):
    flags, written = (*FAMILIES[family], *APOLLO), Path(KEPT or tmp_path / "written")
    if not OTHERS:
        data = make_data(written / "data-bin")
        path = train(data, written / family, *flags, "--max-update=12")
        (written / f"{family}.json").write_text(json.dumps(hypotheses(data, path)), encoding="utf-8")
    for number, folder in enumerate(OTHERS or [written]):
        data, path, run = str(folder / "data-bin"), folder / family / "checkpoint_last.pt", tmp_path / str(number)
        there = json.loads((folder / f"{family}.json").read_text(encoding="utf-8"))
        expected = {number: [pytest.approx(score, abs=CLOSE), words] for number, (score, words) in there.items()}
        assert there and hypotheses(data, path) == expected
        run.mkdir()
        shutil.copy(path, run)
        history = torch.load(train(data, run, *flags, "--max-update=15"), weights_only=True)["optimizer_history"]
        assert (len(history), history[-1]["num_updates"]) == (2, 15)

"""--load-alignments through fairseq's commands."""

import logging
import re
import shutil
from pathlib import Path

import pytest
import torch
from fairseq.data import data_utils, indexed_dataset

from commands import FAMILIES, generate, train

WITH_ALIGNMENTS = (
    *("--criterion=label_smoothed_cross_entropy_with_alignment", "--load-alignments", "--alignment-lambda=1"),
    *("--alignment-layer=0", "--alignment-heads=1", "--optimizer=adam", "--lr=0.01", "--max-epoch=2"),
)


@pytest.fixture
def aligned_data(tiny_data, tmp_path):
    """The data-bin of tiny_training with its alignments: targets are the sources reversed."""
    folder = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    for split in ("train", "valid"):
        sources = data_utils.load_indexed_dataset(str(folder / f"{split}.a-b.a"))
        prefix = str(folder / f"{split}.align.a-b")
        builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap")
        for source in sources:
            words = len(source) - 1
            builder.add_item(torch.tensor([[words - 1 - word, word] for word in range(words)]).flatten())
        builder.finalize(f"{prefix}.idx")
    return str(folder)


@pytest.mark.parametrize("family", ["luna", "mixed"])
def test_a_model_is_trained_with_alignments_and_prints_them(aligned_data, tmp_path, caplog, capsys, family):
    caplog.set_level(logging.INFO)
    path = train(aligned_data, tmp_path / "checkpoints", *FAMILIES[family], *WITH_ALIGNMENTS)
    first, second = re.findall(r"\| alignment_loss ([\d.]+) .*train_wall", caplog.text)
    assert float(second) < float(first)
    generate(aligned_data, str(path), "--print-alignment=hard", "--beam=2")
    assert len(re.findall(r"^A-\d+\t", capsys.readouterr().out, flags=re.M)) == 7

"""Data for trainings of a second, 61 sentences of made-up words, and the weights that they end with."""

import random
import re
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from fairseq.data import indexed_dataset
from fairseq.data.dictionary import Dictionary

SENTENCES = {"train": 61, "valid": 7}

# fairseq 0.12.2 has copies of some weights that are neither trained nor initialized, so they differ between runs.
UNTRAINED = re.compile(r"_float_tensor$|(in_proj|out_proj|fc1|fc2)_(weight|bias)$")


def make_data(folder: Path) -> str:
    """Write a data-bin whose targets are the sources reversed."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    dictionary = Dictionary()
    for word in range(20):
        dictionary.add_symbol(f"w{word}", n=100)
    for language in ("a", "b"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
    for split, count in SENTENCES.items():
        sources = [[draw.randrange(4, 24) for _ in range(draw.randint(2, 9))] for _ in range(count)]
        for language, step in (("a", 1), ("b", -1)):
            prefix = str(folder / f"{split}.a-b.{language}")
            builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=len(dictionary))
            for source in sources:
                builder.add_item(torch.tensor([*source[::step], dictionary.eos()]))
            builder.finalize(f"{prefix}.idx")
    return str(folder)


def trained_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    model = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))["model"]
    return {name: weight for name, weight in model.items() if not UNTRAINED.search(name)}

"""A training of a second: 61 sentences of made-up words and one layer, in this process or by command."""

import random
import re
from pathlib import Path

import torch
from fairseq import checkpoint_utils, options
from fairseq.data import indexed_dataset
from fairseq.data.dictionary import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq_cli import train

SENTENCES = {"train": 61, "valid": 7}
USER_DIR = str(Path(__file__).parents[2] / "fairseq_luna")

# fairseq 0.12.2 has copies of some weights that are neither trained nor initialised, so they differ between runs.
_UNTRAINED = re.compile(r"_float_tensor$|(in_proj|out_proj|fc1|fc2)_(weight|bias)$")


def make_data(folder: Path) -> str:
    """Write a data-bin whose targets are the sources reversed."""
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


def arguments(data: str, save_dir: Path, *more: str) -> list[str]:
    sizes = [
        f"--{side}-{size}"
        for side in ("encoder", "decoder")
        for size in ("layers=1", "embed-dim=16", "ffn-embed-dim=16", "attention-heads=2")
    ]
    return [
        *(data, "--arch=transformer", f"--user-dir={USER_DIR}", f"--save-dir={save_dir}", *sizes),
        *("--optimizer=adam", "--lr=0.01", "--batch-size=8", "--num-workers=0", "--cpu"),
        *("--criterion=label_smoothed_cross_entropy", "--no-epoch-checkpoints", "--log-format=simple"),
        *("--log-interval=1000", *more),
    ]


def train_here(data: str, save_dir: Path, *more: str) -> Path:
    """Train in this process, as a fresh one would, and return the last checkpoint."""
    metrics.reset()
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    parsed = options.parse_args_and_arch(options.get_training_parser(), input_args=arguments(data, save_dir, *more))
    train.main(convert_namespace_to_omegaconf(parsed))
    return save_dir / "checkpoint_last.pt"


def trained_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    model = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))["model"]
    return {name: weight for name, weight in model.items() if not _UNTRAINED.search(name)}

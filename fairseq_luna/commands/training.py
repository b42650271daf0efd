"""The commands of fairseq-train that other commands print."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .steps import USER_DIR

# Settings by the number of training pairs, each up to so many: architecture, rate, warm-up, updates and their size in
# pieces. Small ones end at a rate of 0; the others' rates fall with the inverse square root of the updates.
SIZES = (
    (20_000, ("luna_tiny", "0.003", "300", "2000", "1000")),
    (200_000, ("luna_tiny", "0.005", "1000", "5000", "4096")),
    (1_000_000, ("luna_iwslt_de_en", "0.0005", "4000", "50000", "4096")),
    (math.inf, ("luna_base", "0.0007", "4000", "100000", "4096")),
)
# With them Luna learned most from little text (docs/results.md).
BEST = (
    *("--untie-luna-kv", "--luna-source-attention", "softmax", "--attention-kernel-size", "5"),
    *("--encoder-normalize-before", "--decoder-normalize-before"),
)
ADAM = ("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)")
LOSS = "label_smoothed_cross_entropy"
SMALL = 256  # channels of a model up to which a large rate trains it well


def train(data: object, *flags: object) -> list[object]:
    """The words of fairseq-train with ``flags``."""
    return ["fairseq-train", data, "--user-dir", USER_DIR, *flags]


def on_text(out: Path, languages: Sequence[str], pairs: int) -> list[object]:
    """The words of the command that trains on the text in ``out``, which has so many training ``pairs``."""
    arch, rate, warmup, updates, tokens = next(settings for most, settings in SIZES if pairs <= most)
    schedule: tuple[object, ...] = ("--lr-scheduler", "inverse_sqrt")
    if arch.endswith("_tiny"):
        schedule = ("--lr-scheduler", "polynomial_decay", "--total-num-update", updates)
    words: list[object] = ["--save-dir", out / "checkpoints", "-s", languages[0], "-t", languages[1]]
    words += ["--arch", arch, "--share-all-embeddings", *BEST, "--dropout", "0.1"]
    words += ["--criterion", LOSS, "--label-smoothing", "0.1", *ADAM, "--clip-norm", "1.0", "--lr", rate, *schedule]
    words += ["--warmup-updates", warmup, "--max-tokens", tokens, "--max-update", updates, "--keep-last-epochs", "5"]
    return train(out / "bin", *words)


def finetune(start: Path, cfg: Mapping[str, Any], flags: list[str]) -> list[object]:
    """The words of the command that trains the converted checkpoint ``start``.

    Args:
        cfg: of the checkpoint that it was made of, whose data and criterion are taken.
        flags: of its model.
    """
    task, loss = cfg.get("task") or {}, cfg.get("criterion") or {}
    criterion = loss.get("_name") or LOSS
    smoothing = loss.get("label_smoothing", 0.1 if criterion == LOSS else None)
    wide = cfg["model"]["encoder_embed_dim"] > SMALL
    languages = [(flag, task.get(name)) for flag, name in (("-s", "source_lang"), ("-t", "target_lang"))]
    words: list[object] = [word for flag, name in languages if name for word in (flag, name)]
    if task.get("_name", "translation") != "translation":
        words += ["--task", task["_name"]]
    words += ["--criterion", criterion, *(() if smoothing is None else ("--label-smoothing", smoothing))]
    words += [*ADAM, "--lr", "0.0005" if wide else "0.002", "--lr-scheduler", "polynomial_decay"]
    words += ["--warmup-updates", "100", "--total-num-update", "2000", "--max-update", "2000", "--max-tokens", "4096"]
    # In the old training's folder fairseq would go on from its last checkpoint instead.
    words += ["--save-dir", start.with_suffix(""), "--finetune-from-model", start]
    return train(task.get("data") or "data/bin", *flags, *words)

"""The commands of fairseq-train that other commands print."""

from collections.abc import Mapping
from typing import Any

from .steps import USER_DIR, shortest

ADAM = ("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)")
LOSS = "label_smoothed_cross_entropy"
SMALL = 256  # channels of a model up to which a large rate trains it well


def train(data: object, *flags: object) -> list[object]:
    """The words of fairseq-train with ``flags``."""
    return ["fairseq-train", data, "--user-dir", USER_DIR, *flags]


def finetune(start: Any, cfg: Mapping[str, Any], flags: list[str]) -> list[object]:
    """The words of the command that trains the converted checkpoint ``start``.

    Args:
        start: a path.
        cfg: of the checkpoint that it was made of, whose data and criterion are taken.
        flags: of its model.
    """
    task, criterion = cfg.get("task") or {}, (cfg.get("criterion") or {}).get("_name") or LOSS
    wide = cfg["model"]["encoder_embed_dim"] > SMALL
    languages = [(flag, task.get(name)) for flag, name in (("-s", "source_lang"), ("-t", "target_lang"))]
    words = [word for flag, name in languages if name for word in (flag, name)]
    if task.get("_name", "translation") != "translation":
        words += ["--task", task["_name"]]
    words += ["--criterion", criterion, *(("--label-smoothing", "0.1") if criterion == LOSS else ())]
    words += [*ADAM, "--lr", "0.0005" if wide else "0.002", "--lr-scheduler", "polynomial_decay"]
    words += ["--warmup-updates", "100", "--total-num-update", "2000", "--max-update", "2000", "--max-tokens", "4096"]
    # In the old training's folder fairseq would go on from its last checkpoint instead.
    words += ["--save-dir", shortest(start.with_suffix("")), "--finetune-from-model", shortest(start)]
    return train(task.get("data") or "data/bin", *flags, *words)

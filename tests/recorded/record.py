"""Records small checkpoints and an exported folder, and all that tests expect of them: see README.md.

    PYTHONPATH=.:tests/helpers python tests/recorded/record.py

Files that are there are kept; the expectations are written again.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
SIZES = (
    *("--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16"),
    *("--encoder-attention-heads", "2", "--decoder-layers", "1", "--decoder-attention-heads", "2"),
    *("--share-all-embeddings", "--dropout", "0", "--attention-dropout", "0", "--max-target-positions", "64"),
    *("--max-source-positions", "64"),
)
PRENORM = ("--encoder-normalize-before", "--decoder-normalize-before")
# The third has ConvolvedAttention in the encoder and in the decoder; the fourth is the model that prepare recommends.
MODELS = {
    "luna": ("--arch", "luna_tiny", "--projection-length", "4"),
    "fastformer": ("--arch", "fastformer_tiny", "--attention-kernel-size", "3"),
    "mixed": (
        *("--arch", "mixed_tiny", "--encoder-self-attention", "fastformer", "--decoder-self-attention", "linear"),
        *("--attention-kernel-size", "3"),
    ),
    "luna-prenorm": (
        *("--arch", "luna_tiny", "--projection-length", "4", "--untie-luna-kv", "--luna-source-attention", "softmax"),
        *("--attention-kernel-size", "5", *PRENORM),
    ),
}
OPTIMIZERS = {
    "adam": (
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--lr", "0.01"),
        *("--lr-scheduler", "inverse_sqrt", "--warmup-updates", "20"),
    ),
    "apollo": (
        *("--optimizer", "apollo", "--lr", "0.03", "--weight-decay", "1e-6", "--lr-scheduler", "milestone"),
        *("--milestones", "120", "--warmup-updates", "40", "--warmup-init-lr", "1e-5"),
    ),
}
UPDATES, FURTHER = 150, 3
NAMES = [f"{model}-{optimizer}" for model in MODELS for optimizer in OPTIMIZERS]
EXPORTED = "luna-prenorm-adam"
OPTIONS = {"beam": 3, "max_len_b": 20, "lenpen": 0.6}


def training(name: str, data: object, user_dir: object, save_dir: object, updates: int) -> list[str]:
    """The words after fairseq-train of the training ``name``, up to so many ``updates``."""
    model, optimizer = name.rsplit("-", 1)
    words = [data, "--user-dir", user_dir, "--save-dir", save_dir, "-s", "en", "-t", "de", *MODELS[model], *SIZES]
    words += ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", *OPTIMIZERS[optimizer]]
    words += ["--clip-norm", "1.0", "--batch-size", "16", "--max-update", updates, "--disable-validation", "--cpu"]
    words += ["--no-epoch-checkpoints", "--num-workers", "0", "--data-buffer-size", "0", "--log-format", "json"]
    return [*map(str, words), "--log-interval", "1"]


def checkpoint(name: str) -> Path:
    return HERE / "trained" / f"{name}.pt"


def texts() -> tuple[list[str], list[str]]:
    """Six sentences and their references."""
    source, target = ((HERE / "text" / f"test.{language}").read_text().splitlines() for language in ("en", "de"))
    return source, target


def log_probs(translator: Any) -> list[list[float]]:
    """Of each token of the references, given the sources, in one batch whose sources are padded left."""
    from fairseq.data import data_utils

    sources, targets = ([translator.encode(text) for text in side] for side in texts())
    pad, eos = translator.src_dict.pad(), translator.src_dict.eos()
    source = data_utils.collate_tokens(sources, pad, eos, left_pad=True)
    target = data_utils.collate_tokens(targets, pad, eos)
    prefix = data_utils.collate_tokens(targets, pad, eos, move_eos_to_beginning=True)
    model = translator.models[0]
    with torch.no_grad():
        net_output = model(source, torch.tensor([*map(len, sources)]), prefix)
        found = model.get_normalized_probs(net_output, log_probs=True)
    chosen = found.gather(2, target[..., None]).squeeze(2)
    return [rounded(row[: len(words)].tolist()) for row, words in zip(chosen, targets, strict=True)]


def rounded(numbers: Sequence[float]) -> list[float]:
    return [round(number, 6) for number in numbers]


def hypotheses(translator: Any) -> list[list[Any]]:
    """The text and the score of each sentence's best hypothesis."""
    best = [found[0] for found in translator.generate([*map(translator.encode, texts()[0])], **OPTIONS)]
    return [[translator.decode(one["tokens"]), *rounded([float(one["score"])])] for one in best]


def of_exported(folder: Path) -> list[list[Any]]:
    """The same of an exported model."""
    from fairseq_luna import deployed

    best = [found[0] for found in deployed.Translator(folder).translations(texts()[0], **OPTIONS)]
    return [[one.text, *rounded([one.score])] for one in best]


def logged_losses(records: Sequence[Mapping[str, str]]) -> list[float]:
    """Of each logged update the loss per token, which fairseq prints with three decimals."""
    return [float(record["loss"]) for record in records]


def run(*command: object) -> str:
    """Run a module in this folder, so that files have no path of this machine; returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", *map(str, command)]
    ended = subprocess.run(words, cwd=HERE, env=environment, capture_output=True, text=True, timeout=600)
    if ended.returncode:
        raise RuntimeError(ended.stdout + ended.stderr)
    return ended.stdout + ended.stderr


def prepare() -> None:
    text = [word for split in ("train", "valid", "test") for word in (f"--{split}", *sides(split))]
    run("fairseq_luna", "prepare", *text, "-s", "en", "-t", "de", "--out", "prepared", "--vocabulary-size", "60")
    shutil.rmtree(HERE / "prepared" / "work")
    (HERE / "prepared" / "bin" / "preprocess.log").unlink()


def sides(split: str) -> tuple[str, str]:
    return f"text/{split}.en", f"text/{split}.de"


def train(name: str, save_dir: Path, updates: int) -> str:
    """The log."""
    words = training(name, "prepared/bin", "../../fairseq_luna", os.path.relpath(save_dir, HERE), updates)
    return run("fairseq_cli.train", *words)


def expected() -> dict[str, Any]:
    """The results of the files; their training goes on in a folder that is deleted."""
    import fairseq_luna
    from small_training import logged

    found: dict[str, Any] = {}
    for name in NAMES:
        translator = fairseq_luna.load(checkpoint(name), data=HERE / "prepared" / "bin")
        found[name] = {"log_probs": log_probs(translator), "hypotheses": hypotheses(translator)}
        resumed = HERE / "resumed"
        resumed.mkdir()
        shutil.copy(checkpoint(name), resumed / "checkpoint_last.pt")
        log = logged(train(name, resumed, UPDATES + FURTHER))
        found[name]["losses"] = logged_losses([record for (kind, _), record in log.items() if kind == "train_inner"])
        translator = fairseq_luna.load(resumed, data=HERE / "prepared" / "bin")
        found[name]["log_probs_after"] = log_probs(translator)
        shutil.rmtree(resumed)
    return {**found, "exported": of_exported(HERE / "exported")}


def main() -> None:
    if not (HERE / "prepared").exists():
        prepare()
    for name in NAMES:
        if not checkpoint(name).exists():
            train(name, HERE / name, UPDATES)
            checkpoint(name).parent.mkdir(exist_ok=True)
            (HERE / name / "checkpoint_last.pt").rename(checkpoint(name))
            shutil.rmtree(HERE / name)
    if not (HERE / "exported").exists():
        run("fairseq_luna", "export", f"trained/{EXPORTED}.pt", "--data", "prepared/bin", "--output", "exported")
    lines = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in expected().items())
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

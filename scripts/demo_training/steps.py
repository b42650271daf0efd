"""The demo's steps after its corpus: pieces, data, training, translations."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from demo_corpus import corpus
from fairseq_luna.commands.preparing.pieces import write_dictionary
from fairseq_luna.commands.steps import USER_DIR, run_fairseq

VOCABULARY = 1600


def learn_pieces(corpus_folder: Path, target: Path) -> None:
    """One SentencePiece model for both languages; digits stay single, so that unseen numbers can be copied."""
    target.mkdir(exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        input=[str(corpus_folder / f"train.{language}") for language in ("en", "de")],
        model_prefix=str(target / "joint"),
        model_type="bpe",
        vocab_size=VOCABULARY,
        split_digits=True,
        character_coverage=1.0,
        minloglevel=2,
    )


def binarise(corpus_folder: Path, model: Path, target: Path) -> None:
    """Cut the corpus into pieces and let fairseq-preprocess index them by SentencePiece's own vocabulary."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    target.mkdir(exist_ok=True)
    pieces = target / "pieces"
    pieces.mkdir(exist_ok=True)
    for file in sorted(corpus_folder.iterdir()):
        lines = file.read_text(encoding="utf-8").splitlines()
        text = "".join(" ".join(processor.encode(line, out_type=str)) + "\n" for line in lines)
        (pieces / file.name).write_text(text, encoding="utf-8")
    dictionary = target / "dict.txt"
    write_dictionary(model, dictionary)
    arguments = ["--source-lang", "en", "--target-lang", "de", "--joined-dictionary"]
    arguments += ["--srcdict", str(dictionary), "--destdir", str(target)]
    for part in corpus.SIZES:
        arguments += [f"--{part}pref", str(pieces / part)]
    run_fairseq("preprocess", arguments, target / "preprocess.output")


class Progress:
    """Prints a short line for each of fairseq-train's JSON lines, and keeps the speeds."""

    def __init__(self, max_update: int) -> None:
        self.max_update = max_update
        self.speeds: list[tuple[float, float]] = []

    def __call__(self, line: str) -> None:
        _, found, record = line.partition("| train_inner | {")
        if found:
            values = json.loads("{" + record)
            self.speeds.append((float(values["ups"]), float(values["wps"])))
            print(
                f"  update {values['num_updates']:>5} of {self.max_update}: "
                f"loss {float(values['loss']):6.3f}, "
                f"{float(values['wps']):6.0f} target tokens/s",
                flush=True,
            )
        _, found, record = line.partition("| valid | {")
        if found:
            print(f"  held-out perplexity {json.loads('{' + record)['valid_ppl']}", flush=True)


def train(data: Path, folder: Path, flags: Sequence[str], max_update: int, seed: int) -> None:
    """Train, or resume from the last checkpoint in ``folder``."""
    progress = Progress(max_update)
    if (folder / "checkpoint_last.pt").exists():
        print("  resuming from its last checkpoint", flush=True)
    arguments = [str(data), "--user-dir", str(USER_DIR), "--save-dir", str(folder), *flags]
    arguments += ["--max-update", str(max_update), "--total-num-update", str(max_update)]
    arguments += ["--seed", str(seed), "--no-epoch-checkpoints"]
    arguments += ["--validate-interval", "3", "--log-format", "json", "--log-interval", "100"]
    start = time.monotonic()
    run_fairseq("train", arguments, folder / "train.output", progress)
    seconds = time.monotonic() - start
    print(f"  training took {seconds:.0f} s{progress_speed(progress)}", flush=True)


def progress_speed(progress: Progress) -> str:
    if not progress.speeds:
        return ""
    updates, tokens = (sum(values) / len(progress.speeds) for values in zip(*progress.speeds, strict=True))
    return f" ({updates:.1f} updates and {tokens:.0f} target tokens a second)"


def translate(data: Path, checkpoint: Path, target: Path) -> None:
    """fairseq-generate on the held-out test; its output becomes ``target``."""
    target.unlink(missing_ok=True)
    arguments = [str(data), "--user-dir", str(USER_DIR), "--path", str(checkpoint), "--gen-subset", "test"]
    # Without a limit, a barely trained model would generate 200 words for every sentence.
    arguments += ["--beam", "4", "--max-len-a", "1.5", "--max-len-b", "10"]
    arguments += ["--max-tokens", "4000", "--remove-bpe", "sentencepiece"]
    run_fairseq("generate", arguments, target)

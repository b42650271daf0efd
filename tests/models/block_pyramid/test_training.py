"""The pyramid, trained with fairseq-train to find which of two words occurs more often in a text of 512 words."""

import random

import pytest
import torch
from fairseq.data import indexed_dataset
from fairseq.data.dictionary import Dictionary

from commands import USER_DIR, run

TEXT_WORDS = 512
OTHER_WORDS = 18
MOST = 100  # maximum number of occurrences of each of the two words
SIZES = (
    *("--pyramid-block-sizes=4,8", "--encoder-layers=3", "--encoder-embed-dim=16", "--encoder-ffn-embed-dim=32"),
    *("--encoder-attention-heads=2", "--dropout=0", "--encoder-normalize-before"),
)


def build_index(path, items, words):
    builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=words)
    for item in items:
        builder.add_item(torch.tensor(item))
    builder.finalize(f"{path}.idx")


def make_data(folder, **splits):
    """A data-bin for sentence_prediction with the given number of texts in each split."""
    draw = random.Random(0)
    text, label = Dictionary(), Dictionary()
    for word in ("a", "b", *(f"w{number}" for number in range(OTHER_WORDS))):
        text.add_symbol(word, n=100)
    for word in ("a", "b"):
        label.add_symbol(word, n=100)
    for name, dictionary in (("input0", text), ("label", label)):
        (folder / name).mkdir()
        dictionary.save(str(folder / name / "dict.txt"))
    for split, count in splits.items():
        texts, labels = zip(*(word_count_example(draw, text) for _ in range(count)), strict=True)
        build_index(folder / "input0" / split, texts, len(text))
        build_index(folder / "label" / split, [[label.index(word), label.eos()] for word in labels], len(label))
    return str(folder)


def word_count_example(draw, dictionary):
    """A text's tokens, and "a" or "b", the one that occurs more often in it."""
    a, b = draw.sample(range(MOST + 1), 2)
    words = ["a"] * a + ["b"] * b
    words += [f"w{draw.randrange(OTHER_WORDS)}" for _ in range(TEXT_WORDS - len(words))]
    draw.shuffle(words)
    return [*map(dictionary.index, words), dictionary.eos()], "a" if a > b else "b"


def train(data, save_dir, *more):
    """Run fairseq-train; return the path of the last checkpoint and its validation accuracy in percent."""
    run(
        "train",
        *(data, f"--user-dir={USER_DIR}", f"--save-dir={save_dir}", "--task=sentence_prediction", "--cpu"),
        *("--arch=block_pyramid_classifier", "--criterion=sentence_prediction", "--num-classes=2"),
        *("--init-token=0", f"--max-positions={TEXT_WORDS + 2}", "--optimizer=adam", "--num-workers=0"),
        *("--best-checkpoint-metric=accuracy", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"),
        *("--log-format=simple", "--log-interval=1000", *SIZES, *more),
    )
    path = save_dir / "checkpoint_last.pt"
    return path, torch.load(path, weights_only=True)["extra_state"]["val_loss"]  # fairseq's name for any metric


def test_trains_is_saved_resumed_and_validated(tmp_path):
    data = make_data(tmp_path, train=12, valid=4)
    flags = ("--lr=0.001", "--batch-size=4")
    train(data, tmp_path / "model", *flags, "--max-epoch=1")
    path, accuracy = train(data, tmp_path / "model", *flags, "--max-epoch=2")
    assert accuracy in (0, 25, 50, 75, 100)
    state = torch.load(path, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 6
    assert state["cfg"]["model"]["pyramid_block_sizes"] == "4,8"
    run(
        "validate",
        *(data, f"--user-dir={USER_DIR}", f"--path={path}", "--cpu", "--task=sentence_prediction", "--num-classes=2"),
        *("--criterion=sentence_prediction", "--init-token=0", f"--max-positions={TEXT_WORDS + 2}"),
        *("--valid-subset=valid", "--num-workers=0", "--batch-size=4"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_finds_which_of_two_words_occurs_more_often(tmp_path, seed):
    data = make_data(tmp_path, train=2000, valid=200)
    _, accuracy = train(
        *(data, tmp_path / "model", f"--seed={seed}", "--batch-size=16", "--max-epoch=3", "--lr=0.005"),
        *("--lr-scheduler=polynomial_decay", "--total-num-update=375", "--warmup-updates=40"),
    )
    assert accuracy >= 90

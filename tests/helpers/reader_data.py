"""Data of random letters for fairseq's tasks that read texts, and reviews of a few words in plain files."""

import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path

import torch
from fairseq.data import data_utils, indexed_dataset
from fairseq.data.dictionary import Dictionary

LETTERS = "abcdefghij"
SPLITS = {"train": 24, "valid": 6}
CHOICES = 3
WORDS = {"0": ["bad", "dull", "poor"], "1": ["good", "fine", "rare"]}


def reviews(count: int, seed: int) -> list[tuple[str, str]]:
    """Labels, 0 or 1, and texts."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.choice("01")
        made.append((label, " ".join(draw.choices([*WORDS[label], "film", "plot", "<br />"], k=draw.randint(4, 30)))))
    return made


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a plain or a .gz file."""
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def read_words(prefix: Path, dictionary: Path) -> list[str]:
    """The texts of a data-bin."""
    words = Dictionary.load(str(dictionary))
    dataset = data_utils.load_indexed_dataset(str(prefix), words)
    return [words.string(dataset[index]) for index in range(len(dataset))]


def read_texts(prefix: Path, dictionary: Path) -> list[str]:
    """The texts of a data-bin made of SentencePiece's pieces."""
    return ["".join(text.split()).replace("▁", " ").strip() for text in read_words(prefix, dictionary)]


def language_model_data(folder: Path) -> str:
    """For masked_lm: in each text a few letters repeat."""
    draw, words = random.Random(0), _save_dictionary(folder, [*LETTERS, "▁"])
    for split, count in SPLITS.items():
        texts = [draw.choices(draw.sample(LETTERS, 3), k=draw.randint(3, 20)) for _ in range(count)]
        _save(folder / split, words, texts)
    return str(folder)


def classification_data(folder: Path, *, inputs: int) -> str:
    """For sentence_prediction: whether all texts of an example, one or two, begin with an a."""
    draw = random.Random(0)
    places = [folder / f"input{number}" for number in range(inputs)]
    for place in (*places, folder / "label"):
        place.mkdir(parents=True)
    words = [_save_dictionary(place, [*LETTERS, "▁"]) for place in places]
    labels = _save_dictionary(folder / "label", ["no", "yes"])
    for split, count in SPLITS.items():
        examples = [[_text(draw) for _ in places] for _ in range(count)]
        for place, dictionary, texts in zip(places, words, zip(*examples, strict=True), strict=True):
            _save(place / split, dictionary, texts)
        answers = ["yes" if all(text[0] == "a" for text in texts) else "no" for texts in examples]
        _save(folder / "label" / split, labels, [[answer] for answer in answers])
    return str(folder)


def ranking_data(folder: Path) -> str:
    """For sentence_ranking: a question and the choices, of which one is right."""
    draw = random.Random(0)
    for number in range(CHOICES + 1):
        (folder / f"input{number}").mkdir(parents=True)
        words = _save_dictionary(folder / f"input{number}", [*LETTERS, "▁"])
        for split, count in SPLITS.items():
            _save(folder / f"input{number}" / split, words, [_text(draw) for _ in range(count)])
    (folder / "label").mkdir()
    for split, count in SPLITS.items():
        lines = "".join(f"{draw.randrange(CHOICES)}\n" for _ in range(count))
        (folder / "label" / f"{split}.label").write_text(lines, encoding="utf-8")
    return str(folder)


def commonsense_data(folder: Path) -> str:
    """For commonsense_qa: lines of JSON."""
    draw = random.Random(0)
    _save_dictionary(folder, [*LETTERS, "Q:", "A:"])
    for split, count in SPLITS.items():
        examples = [
            {
                "answerKey": draw.choice("ABCDE"),
                "question": {
                    "stem": " ".join(_text(draw)),
                    "choices": [{"label": label, "text": " ".join(_text(draw))} for label in "ABCDE"],
                },
            }
            for _ in range(count)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in examples), encoding="utf-8")
    return str(folder)


def _text(draw: random.Random) -> list[str]:
    return draw.choices("aaa" + LETTERS, k=draw.randint(3, 20))


def _save_dictionary(folder: Path, symbols: list[str]) -> Dictionary:
    words = Dictionary()
    for symbol in symbols:
        words.add_symbol(symbol, n=100)
    words.save(str(folder / "dict.txt"))
    return words


def _save(prefix: Path, words: Dictionary, texts: list[list[str]]) -> None:
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=len(words))
    for text in texts:
        builder.add_item(torch.tensor([*map(words.index, text), words.eos()]))
    builder.finalize(f"{prefix}.idx")

"""plot_attention.py with a trained checkpoint: its pictures and its refusals in one line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from torch.testing import assert_close

import plot_attention
from commands import APOLLO, FAMILIES, train
from fairseq_luna.usage_error import UsageError
from plots import attention_picture, reading
from plots.attention_map import SIDES, AttentionMap, Axis, Pair
from plots.attention_maps import attention_maps
from support import EOS, as_prefix, build_luna, sentences

SOURCE = ["a$b$", "$\\frac$", "c", "d", "</s>"]
PREDICTED = ["$\\x$", "y", "</s>"]


@pytest.fixture(scope="module")
def maps() -> list[AttentionMap]:
    """Cross attention of the last of two layers, with two pack heads and four unpack heads."""
    model = build_luna(encoder_projected_attention_heads=2, decoder_projected_attention_heads=2).eval()
    pair = Pair(sentences(5), as_prefix(sentences(3)), SOURCE, ["</s>", "x", "y"], PREDICTED)
    return attention_maps(model, pair, ["cross"])


def test_a_picture_has_the_words_at_its_axes(maps: list[AttentionMap]) -> None:
    figure = attention_picture.draw(maps, [])
    figure.draw_without_rendering()
    panels = {axis.get_title(): axis for axis in figure.axes if axis.get_title() and axis.get_visible()}
    assert list(panels) == [
        *(f"cross layer 1, pack, head {head}" for head in range(2)),
        *(f"cross layer 1, unpack, head {head}" for head in range(4)),
        *(f"cross layer 1, through, head {head}" for head in range(4)),
    ]
    through = panels["cross layer 1, through, head 3"]
    assert [label.get_text() for label in through.get_xticklabels()] == SOURCE
    assert [label.get_text() for label in through.get_yticklabels()] == PREDICTED
    assert_close(torch.tensor(through.images[0].get_array().data), maps[2].weights[3])
    assert (through.images[0].norm.vmin, through.images[0].norm.vmax) == (0, float(maps[2].weights.max()))


def test_more_words_than_can_be_read_are_not_written() -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    for words in (40, 41):
        attention_picture._label(axes.set_xticks, axes.set_xlabel, Axis("source words", ["w"] * words))
        assert len(axes.get_xticks()) == (words if words == 40 else 0)
    pyplot.close(figure)


def test_missing_heads_and_too_many_panels_are_refused(maps: list[AttentionMap]) -> None:
    with pytest.raises(UsageError, match=r"--heads 2: cross pack has 2, counted from 0"):
        attention_picture.chosen_heads(maps, [0, 2])
    assert attention_picture.chosen_heads(maps, [1]) == [[1], [1], [1]]
    with pytest.raises(UsageError, match="70 maps are too many for one picture: choose fewer --layers"):
        attention_picture.chosen_heads(maps * 7, [])


def test_text_is_split_by_its_sentencepiece_model(tmp_path: Path) -> None:
    import sentencepiece

    text = tmp_path / "text"
    text.write_text("the cat sat on the mat\nthe dog sat on the cat\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=20, model_type="bpe", minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model")).encode("the cat", out_type=str)
    dictionary = Dictionary()
    for piece in pieces:
        dictionary.add_symbol(piece)
    side = SimpleNamespace(max_positions=lambda: 9)
    model = SimpleNamespace(encoder=side, decoder=side)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    found = reading.sentence_pair(model, task, "the cat", "the cat", tmp_path / "m.model")
    assert found.source_words == found.predicted_words == [*pieces, "</s>"]
    assert found.prefix_words == ["</s>", *pieces]
    ids = [dictionary.index(piece) for piece in pieces]
    assert dictionary.unk() not in ids
    assert found.source.tolist() == [[*ids, EOS]]
    assert found.prefix.tolist() == [[EOS, *ids]]
    for unread in ("the cat", "cat"):
        with pytest.raises(UsageError, match=r"--source: is not in pieces.*; give --sentencepiece-model"):
            reading.source_sentence(model, task, unread, None)
    for nothing in ("\u200b", "\u00ad \u3000"):
        with pytest.raises(UsageError, match="--source: the sentence is empty"):
            reading.source_sentence(model, task, nothing, tmp_path / "m.model")
    words, tokens = reading.source_sentence(model, task, "the\u0085 cat", tmp_path / "m.model")
    assert len(words) + 1 == tokens.shape[1] and "\u0085" not in words  # as fairseq reads a line
    with pytest.raises(UsageError, match=r"text: is no SentencePiece model"):
        reading.sentence_pair(model, task, "the cat", "the cat", text)
    with pytest.raises(UsageError, match=r"--target: 11 tokens, but the model reads at most 9"):
        reading.sentence_pair(model, task, pieces[0], " ".join([pieces[0]] * 10), None)


@pytest.fixture(scope="module")
def checkpoint(tiny_data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = (*FAMILIES["luna"], *APOLLO, "--max-update=2", "--disable-validation")
    return train(tiny_data, tmp_path_factory.mktemp("luna"), *flags)


def pixels(file: Path) -> Any:
    from matplotlib import image

    return image.imread(file)


@pytest.mark.parametrize("target", [["--target", "w3 w2"], []], ids=["given", "translated"])
def test_a_trained_checkpoint_is_drawn(
    target: list[str], checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "maps.png"
    flags = ["--layers", "0", "1", "--heads", "1", "--output", str(output)]
    assert plot_attention.main([str(checkpoint), "--source", "w2 w3 w4", *target, *flags]) == 0
    drawn = [f"{side} layer {n} {kind}" for side in SIDES for n in (0, 1) for kind in ("pack", "unpack")]
    assert capsys.readouterr().out.splitlines()[-1] == f"{output}: {', '.join(drawn)}"
    picture = pixels(output)
    assert picture.shape[0] > picture.shape[1] > 100  # twelve maps of one head, one above the other
    assert picture[..., :3].std() > 0.05
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"--output": "maps.pdf"}, "maps.pdf: the name must end in .png"),
        ({"--output": "no/maps.png"}, "there is no folder"),
        ({"--output": "here.png"}, "here.png: it exists; give another name, or --force"),
        ({"--source": " "}, "--source: the sentence is empty"),
        ({"--source": "w1 A man"}, "--source: 2 of 3 words are not in the dictionary; give the pieces"),
        ({"--target": "A"}, "--target: 1 of 1 words are not in the dictionary"),
        ({"--sentencepiece-model": "no.model"}, "no.model: is no SentencePiece model, or cannot be read"),
        ({"--layers": "7"}, "--layers 7: the encoder has 2, counted from 0"),
        ({"--heads": "7"}, "--heads 7: encoder pack has 2, counted from 0"),
        ({"--data": "nowhere"}, "--data names the folder with the dictionaries"),
        ({"CHECKPOINT": "none.pt"}, "none.pt: there is no such file"),
        ({"CHECKPOINT": "here.png"}, "here.png is not a fairseq checkpoint"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_writes_nothing(
    change: dict[str, str],
    complaint: str,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.png").write_text("mine")
    flags = {"CHECKPOINT": str(checkpoint), "--source": "w1 w2", "--target": "w2", "--output": "maps.png", **change}
    arguments = [flags.pop("CHECKPOINT"), *(part for flag in flags.items() for part in flag)]
    assert plot_attention.main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("plot_attention.py: ")
    assert complaint in said[-1]
    assert not any("Traceback" in line for line in said)
    assert [path.name for path in tmp_path.iterdir()] == ["here.png"]
    assert Path("here.png").read_text() == "mine"


def test_a_checkpoint_that_would_run_code_is_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "touched",)

    state = torch.load(checkpoint, weights_only=True)
    torch.save({**state, "more": Evil()}, tmp_path / "evil.pt")
    arguments = [str(tmp_path / "evil.pt"), "--source", "w1", "--output", str(tmp_path / "maps.png")]
    assert plot_attention.main(arguments) == 2
    assert "was refused: it holds" in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["evil.pt"]

"""The IMDB systems: each parses and differs only in the model; one is pre-trained, trained and scored."""

import shutil
from pathlib import Path

import pytest

from examples.wmt14_runs import REPOSITORY, refusal, shell
from reader_data import classification_data, language_model_data
from recipes.settings import command_settings, script_command

IMDB = REPOSITORY / "examples" / "imdb"
SMALL = (
    *("--encoder-layers=1", "--encoder-embed-dim=16", "--encoder-ffn-embed-dim=16", "--encoder-attention-heads=2"),
    *("--max-epoch=1", "--num-workers=0", "--data-buffer-size=0", "--cpu"),
)


@pytest.fixture
def data(tmp_path):
    return classification_data(tmp_path / "bin", inputs=1)


@pytest.fixture
def text(data, tmp_path):
    """As scripts/prepare_masked_lm.py makes it: a text of its own beside that of the classifier."""
    folder = Path(language_model_data(tmp_path / "text"))
    for file in Path(data, "input0").glob("train.???"):
        shutil.copyfile(file, folder / f"{file.stem}1{file.suffix}")
    return str(folder)


def settings(system, data, **environment):
    environment = {"DATA": data, "SAVE_DIR": f"{data}/run", **environment}
    return command_settings(script_command(IMDB / "train.sh", environment, [system]))


@pytest.mark.parametrize(
    ("system", "attention"),
    [
        ("transformer", "softmax"),
        ("luna", None),
        ("luna_untied", None),
        ("fastformer", "fastformer"),
        ("block", "block"),
    ],
)
def test_every_system_gets_the_same_training(system, attention, data):
    ours, transformer = settings(system, data), settings("transformer", data)
    for part in ("dataset", "task", "criterion", "optimization", "lr_scheduler"):
        assert getattr(ours, part) == getattr(transformer, part), part
    for size in ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "dropout", "pooling"):
        assert getattr(ours.model, size) == getattr(transformer.model, size), size
    assert attention is None or str(ours.model.encoder_self_attention) == attention


def test_the_pyramid_gets_the_training_of_the_others(data):
    ours, transformer = settings("block_pyramid", data, LENGTH="2048"), settings("transformer", data, LENGTH="2048")
    for part in ("dataset", "task", "criterion", "optimization", "lr_scheduler"):
        assert getattr(ours, part) == getattr(transformer, part), part
    for size in ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "dropout"):
        assert getattr(ours.model, size) == getattr(transformer.model, size), size
    assert (ours.model._name, ours.model.max_positions) == ("block_pyramid_classifier", 2048)


def test_length_pooling_and_seed(data):
    chosen = settings("luna", data, LENGTH="2048", POOLING="cls", SEED="3")
    assert (chosen.task.max_positions, str(chosen.model.pooling), chosen.common.seed) == (2048, "cls", 3)
    assert chosen.task.num_classes == 2
    language_model = settings("luna", data, LENGTH="2048", TASK="masked_lm")
    assert (language_model.task.tokens_per_sample, language_model.model.max_positions) == (2048, 2048)
    assert language_model.task.data == f"{data}/input0"


def test_language_model_of_other_texts_too(text):
    ours, transformer = (settings(system, text, TASK="masked_lm") for system in ("luna", "transformer"))
    assert ours.task.data == text
    for part in ("dataset", "task", "optimizer", "optimization", "lr_scheduler"):
        assert getattr(ours, part) == getattr(transformer, part), part


@pytest.mark.parametrize(
    ("script", "arguments", "environment", "said"),
    [
        ("train.sh", [], {}, "give a SYSTEM"),
        ("train.sh", ["luna"], {"DATA": ""}, "set DATA"),
        ("train.sh", ["luna"], {"DATA": "/nowhere"}, "there is no input0/dict.txt in DATA=/nowhere"),
        ("train.sh", ["luna"], {"TASK": "translate"}, "TASK is classify or masked_lm, not 'translate'"),
        ("train.sh", ["block_pyramid"], {"TASK": "masked_lm"}, "leave out TASK, POOLING and START"),
        ("train.sh", ["luna"], {"START": "/nowhere.pt"}, "there is no checkpoint START=/nowhere.pt"),
        ("score.sh", [], {}, "give a checkpoint"),
        ("score.sh", ["/nowhere.pt"], {}, "there is no checkpoint /nowhere.pt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_values_end_in_one_line(data, script, arguments, environment, said):
    line = refusal(shell(IMDB / script, *arguments, **{"DATA": data, **environment}))
    assert line.startswith(f"{script}: ")
    assert said in line


@pytest.mark.slow
def test_from_language_model_to_accuracy(data, text, tmp_path):
    place = {"LENGTH": 20, "folder": tmp_path}
    steps = (
        ("language_model", {"DATA": text, "TASK": "masked_lm"}),
        ("classifier", {"DATA": data, "START": tmp_path / "language_model" / "checkpoint_best.pt"}),
    )
    for name, environment in steps:
        ended = shell(IMDB / "train.sh", "fastformer", *SMALL, SAVE_DIR=tmp_path / name, **environment, **place)
        assert ended.returncode == 0, ended.stderr
        if name == "language_model":
            assert f"examples from: {text}/train1" in ended.stdout + ended.stderr
    checkpoint = str(tmp_path / "classifier" / "checkpoint_best.pt")
    scored = shell(IMDB / "score.sh", checkpoint, "--cpu", "--num-workers=0", SUBSET="valid", DATA=data, **place)
    assert scored.returncode == 0, scored.stderr
    assert float(scored.stdout) in {round(100 * right / 6, 1) for right in range(7)}

"""Files of an earlier commit are read as they were then: checkpoints, their trainings' states, an exported folder."""

import json
import shutil

import pytest
import torch

import fairseq_luna
from commands import run
from fairseq_luna.commands.shell_commands import USER_DIR
from own_command import shown
from recorded import record
from small_training import updates

EXPECTED = json.loads((record.HERE / "expected.json").read_text(encoding="utf-8"))
DATA = record.HERE / "prepared" / "bin"
EVERY = pytest.mark.parametrize("name", record.NAMES)
ONE_OF_EACH = pytest.mark.parametrize("name", [f"{model}-adam" for model in record.MODELS])
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def assert_gives(path, log_probs, close=2e-5):
    """The checkpoint at ``path`` has these log-probabilities of the references' tokens."""
    translator = fairseq_luna.load(path, data=DATA)
    for found, expected in zip(record.log_probs(translator), log_probs, strict=True):
        assert found == pytest.approx(expected, abs=close)
    return translator


def assert_translates(found, expected):
    """To the texts and, but for rounding, with the scores."""
    assert [text for text, _ in found] == [text for text, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-4)


def test_the_models_say_something():
    """Each another, of several words, and nothing by a hair's breadth from another."""
    said = [[text for text, _ in EXPECTED[name]["hypotheses"]] for name in record.NAMES]
    assert len({*map(tuple, said)}) == len(record.NAMES)
    assert_translates(EXPECTED["exported"], EXPECTED[record.EXPORTED]["hypotheses"])


@EVERY
def test_a_checkpoint_gives_what_it_gave(name):
    translator = assert_gives(record.checkpoint(name), EXPECTED[name]["log_probs"])
    assert_translates(record.hypotheses(translator), EXPECTED[name]["hypotheses"])


@EVERY
def test_its_training_goes_on_with_the_optimizers_state(name, tmp_path, caplog):
    caplog.set_level("INFO")
    shutil.copy(record.checkpoint(name), tmp_path / "checkpoint_last.pt")
    run("train", *record.training(name, DATA, USER_DIR, tmp_path, record.UPDATES + record.FURTHER))
    losses = record.logged_losses(updates(caplog))
    assert losses == pytest.approx(EXPECTED[name]["losses"], abs=2e-3)  # they are printed with three decimals
    assert_gives(tmp_path / "checkpoint_last.pt", EXPECTED[name]["log_probs_after"], close=2e-3)


@ONE_OF_EACH
def test_it_is_averaged(name, tmp_path, capsys):
    """With a copy of itself."""
    copy = shutil.copy(record.checkpoint(name), tmp_path / "copy.pt")
    shown(capsys, "average", record.checkpoint(name), copy, "--output", tmp_path / "average.pt")
    assert_gives(tmp_path / "average.pt", EXPECTED[name]["log_probs"])


@ONE_OF_EACH
def test_it_is_converted(name, tmp_path, capsys):
    """To a longer convolution, which starts as the one that it has."""
    _, arch, *flags = record.MODELS[name.removesuffix("-adam")]
    if "--attention-kernel-size" in flags:  # no flag may be given twice
        flags[flags.index("--attention-kernel-size") + 1] = "7"
    else:
        flags += ["--attention-kernel-size", "7"]
    flags += ["--share-all-embeddings"]
    shown(capsys, "convert", record.checkpoint(name), "--arch", arch, *flags, "--output", tmp_path / "start.pt")
    assert_gives(tmp_path / "start.pt", EXPECTED[name]["log_probs"])


@pytest.mark.slow
@pytest.mark.skipif(TORCH < (2, 7), reason="torch.export of torch 2.6 takes one size of batch alone")
@ONE_OF_EACH
def test_it_is_exported(name, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    shown(capsys, "export", record.checkpoint(name), "--data", DATA, "--output", tmp_path / "exported")
    assert_translates(record.of_exported(tmp_path / "exported"), EXPECTED[name]["hypotheses"])


def test_the_exported_folder_translates_as_it_did():
    pytest.importorskip("onnxruntime")
    assert_translates(record.of_exported(record.HERE / "exported"), EXPECTED["exported"])

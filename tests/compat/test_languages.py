"""A model of other languages than those of the command: fairseq's commands warn, training too, and go on."""

import shutil
from pathlib import Path

import pytest

import fairseq_luna
from commands import FAMILIES, generate, run, train
from fairseq_luna.compat import PATCHES
from fairseq_luna.trained_languages import untrained_pair
from fairseq_luna.usage_error import UsageError
from own_command import refused

SAID = "{file} says: the translations may be nonsense"
TWO_UPDATES, THREE_UPDATES = (
    ("--optimizer=adam", "--lr=0.01", f"--max-update={updates}", "--disable-validation") for updates in (2, 3)
)


@pytest.fixture(scope="module")
def data(tiny_data, tmp_path_factory):
    """The data of both directions."""
    copied = Path(shutil.copytree(tiny_data, tmp_path_factory.mktemp("both") / "data"))
    for file in list(copied.glob("*.a-b.*")):
        shutil.copy(file, copied / file.name.replace("a-b", "b-a"))
    return str(copied)


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    return train(data, tmp_path_factory.mktemp("a-b"), *FAMILIES["luna"], *TWO_UPDATES, "-s=a", "-t=b")


def test_a_reversed_model_is_said_and_used(data, checkpoint, tmp_path, capsys, caplog):
    other = shutil.copy(checkpoint, tmp_path / "other.pt")
    ensemble = f"{checkpoint}:{other}"
    generate(data, ensemble, "-s=b", "-t=a")
    assert "H-0\t" in capsys.readouterr().out
    for file in (checkpoint, other):
        assert (
            f"--source-lang b, --target-lang a: its training was from a to b, as {SAID.format(file=file)}"
            in caplog.messages
        )
    caplog.clear()
    generate(data, ensemble, "-s=a", "-t=b")
    assert not any("its training was" in message for message in caplog.messages)


@pytest.fixture(scope="module")
def untold(tiny_data, tmp_path_factory):
    """A checkpoint of a training without -s and -t, which took the languages from the names of its data."""
    return train(tiny_data, tmp_path_factory.mktemp("untold"), *FAMILIES["luna"], *TWO_UPDATES)


def test_the_names_of_the_data_tell_a_direction_that_the_checkpoint_does_not_know(tiny_data, untold, capsys, caplog):
    generate(tiny_data, untold, "-s=b", "-t=a")
    assert "H-0\t" in capsys.readouterr().out
    assert any(f"from a to b, as the names of the data in {tiny_data} say: the" in said for said in caplog.messages)
    caplog.clear()
    for given in ((), ("-s=a", "-t=b")):
        generate(tiny_data, untold, *given)
    assert not any("its training was" in said for said in caplog.messages)


def test_a_reversed_direction_of_the_data_is_refused_in_loading(tiny_data, untold, tmp_path):
    with pytest.raises(UsageError, match=r"its training was from a to b, as the names of the data in .* say; leave"):
        fairseq_luna.load(untold, source_lang="b", target_lang="a")
    for wanted in ({}, {"source_lang": "a", "target_lang": "b"}):
        assert fairseq_luna.load(untold, **wanted).task.cfg.source_lang == "a"
    several = Path(shutil.copytree(tiny_data, tmp_path / "several"))
    for file in list(several.glob("train.a-b.*")):
        shutil.copy(file, file.with_name(file.name.replace("a-b", "b-a")))
    assert fairseq_luna.load(untold, source_lang="a", target_lang="b", data=several)


def test_pairs_of_extra_data_are_trained_too():
    direction = {"source_lang": "b", "target_lang": "a"}
    assert untrained_pair({"lang_pairs": "a-b"}, direction) == "b-a: its training was of a-b"
    assert untrained_pair({"lang_pairs": ["a-b"], "extra_lang_pairs": "b-a,c-a"}, direction) is None


@pytest.mark.parametrize("start", ["--restore-file", "--finetune-from-model"])
def test_a_training_that_goes_on_from_a_reversed_model_says_so(start, data, checkpoint, tmp_path, caplog):
    flags = (*FAMILIES["luna"], *THREE_UPDATES, f"{start}={checkpoint}")
    train(data, tmp_path / "same", *flags, "-s=a", "-t=b")
    assert not any("its training was" in message for message in caplog.messages)
    train(data, tmp_path / "reversed", *flags, "-s=b", "-t=a")
    [message] = [message for message in caplog.messages if "its training was" in message]
    assert message == (
        f"--source-lang b, --target-lang a: its training was from a to b, as {checkpoint} says:"
        " the training goes on from a model of other languages"
    )


def test_a_pair_that_a_model_of_several_languages_was_not_trained_with_is_said(data, tmp_path, capsys, caplog):
    several = ("--task=translation_multi_simple_epoch", "--langs=a,b", "--decoder-langtok")
    saved = train(data, tmp_path, *FAMILIES["luna"], *several, "--lang-pairs=a-b", *TWO_UPDATES)
    for source, target, count in (("a", "b", 0), ("b", "a", 1)):
        pair = f"{source}-{target}"
        for file in Path(data).glob(f"valid.{pair}.*"):
            shutil.copy(file, file.with_name(file.name.replace("valid", "test")))
        generate(
            data, str(saved), *several, f"--lang-pairs={pair}", f"-s={source}", f"-t={target}", "--gen-subset=test"
        )
        assert "H-0\t" in capsys.readouterr().out
        said = f"b-a: its training was of a-b, as {SAID.format(file=saved)}"
        assert caplog.messages.count(said) == count


def test_export_refuses_a_reversed_direction(data, checkpoint, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    arguments = ("export", checkpoint, "--data", data, "--output", tmp_path / "exported")
    said = refused(capsys, *arguments, "--source-lang=b", "--target-lang=a")
    assert said.startswith("--source-lang b, --target-lang a: its training was from a to b, as ")
    assert not (tmp_path / "exported").exists()


def test_fairseq_interactive_says_it_too(data, checkpoint, tmp_path, caplog):
    (tmp_path / "text").write_text("w1 w2\n", encoding="utf-8")
    for source, target, count in (("b", "a", 1), ("a", "b", 0)):
        run(
            "interactive",
            *(data, f"--path={checkpoint}", f"-s={source}", f"-t={target}", f"--input={tmp_path / 'text'}", "--cpu"),
            "--max-len-b=4",
        )
        assert sum("its training was from a to b" in message for message in caplog.messages) == count
        caplog.clear()


def test_the_probe_finds_no_fault_in_a_patched_fairseq():
    """fairseq with the patch is a fixed one."""
    assert not PATCHES["languages"].is_needed()

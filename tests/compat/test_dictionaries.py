"""A model that is used with dictionaries of the same size and other words: fairseq's commands warn, the others refuse.

The data with other words is a copy whose dictionary has its lines in another order.
"""

import shutil
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary

import fairseq_luna
from commands import FAMILIES, TRANSFORMER, generate, run, train
from fairseq_luna.dictionary_fingerprints import FINGERPRINTS, dictionary_fingerprints
from own_command import refused, shown

MODEL = FAMILIES["luna"]
TWO_UPDATES = ("--optimizer=adam", "--lr=0.01", "--max-update=2", "--disable-validation")
SAID = "the {} of its training had other words than the data"
VALIDATION = ("--task=translation", "--valid-subset=valid", "--batch-size=4", "--cpu", "--num-workers=0")
BOTH = "source and target dictionaries"


def said(caplog):
    return [message for message in caplog.messages if "of its training had other words" in message]


def with_other_words(data, target, *sides):
    """A copy of ``data`` in which the dictionaries of ``sides`` have their first line at the end."""
    shutil.copytree(data, target)
    for side in sides:
        file = target / f"dict.{side}.txt"
        first, *lines = file.read_text(encoding="utf-8").splitlines()
        file.write_text("\n".join([*lines, first, ""]), encoding="utf-8")
    return str(target)


@pytest.fixture(scope="module")
def checkpoint(tiny_data, tmp_path_factory):
    return train(tiny_data, tmp_path_factory.mktemp("trained"), *MODEL, *TWO_UPDATES)


@pytest.fixture(scope="module")
def other(tiny_data, tmp_path_factory):
    return with_other_words(tiny_data, tmp_path_factory.mktemp("other") / "data", "a", "b")


def test_a_checkpoint_has_the_fingerprints_of_its_dictionaries(tiny_data, checkpoint):
    recorded = torch.load(checkpoint, weights_only=True)["extra_state"][FINGERPRINTS]
    source, target = (Dictionary.load(f"{tiny_data}/dict.{side}.txt") for side in "ab")
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    assert recorded == dictionary_fingerprints(task) and set(recorded) == {"source", "target"}


def test_fingerprints_are_of_words_in_their_order():
    def fingerprint(*words):
        dictionary = Dictionary()
        for count, word in enumerate(words):
            dictionary.add_symbol(word, n=count + 1)
        return dictionary_fingerprints(SimpleNamespace(dicts={"en": dictionary}))["en"]

    assert fingerprint("x", "y") != fingerprint("y", "x") != fingerprint("x") != fingerprint("x", "z")
    assert fingerprint("x", "y") == fingerprint("x", "y")
    assert fingerprint("x", "y", "<mask>") == fingerprint("x", "y")  # as fairseq's denoising task adds it
    assert dictionary_fingerprints(SimpleNamespace(source_dictionary=None)) == {}
    assert set(dictionary_fingerprints(SimpleNamespace(label_dictionary=Dictionary()))) == {"label"}


def test_generation_warns(tiny_data, other, checkpoint, capsys, caplog):
    generate(tiny_data, str(checkpoint))
    assert not said(caplog)
    generate(other, str(checkpoint))
    assert "H-0\t" in capsys.readouterr().out
    assert len(said(caplog)) == 1 and said(caplog)[0].startswith(f"{checkpoint}: {SAID.format(BOTH)}")


def test_validation_warns(tiny_data, other, checkpoint, capsys, caplog):
    """fairseq-validate may replace the handlers of the log: the warning is then on standard output."""
    for data, warns in ((tiny_data, False), (other, True)):
        run("validate", data, f"--path={checkpoint}", *VALIDATION)
        logged = "\n".join([capsys.readouterr().out, *caplog.messages])
        assert ("of its training had other words" in logged) == warns


@pytest.mark.parametrize("start", ["--restore-file", "--finetune-from-model"])
def test_training_further_warns(start, tiny_data, other, checkpoint, tmp_path, caplog):
    flags = (*MODEL, *TWO_UPDATES, f"{start}={checkpoint}", "--max-update=3")
    train(tiny_data, tmp_path / "same", *flags)
    assert not said(caplog)
    saved = train(other, tmp_path / "further", *flags)
    [message] = said(caplog)
    assert SAID.format(BOTH) in message
    caplog.clear()
    generate(other, str(saved))  # the model is of these dictionaries from now on
    assert not said(caplog)


def test_a_checkpoint_without_fingerprints_is_read_without_a_warning(other, checkpoint, tmp_path, caplog):
    state = torch.load(checkpoint, weights_only=True)
    del state["extra_state"][FINGERPRINTS]
    torch.save(state, tmp_path / "older.pt")
    generate(other, str(tmp_path / "older.pt"))
    assert not said(caplog)
    words = Dictionary.load(f"{other}/dict.a.txt")
    assert fairseq_luna.load(tmp_path / "older.pt", data=other).src_dict == words


def test_load_and_export_refuse(tiny_data, other, checkpoint, tmp_path, capsys):
    assert fairseq_luna.load(checkpoint, data=tiny_data)
    with pytest.raises(ValueError, match=f"{SAID.format(BOTH)} in {other}; name the folder"):
        fairseq_luna.load(checkpoint, data=other)
    assert SAID.format(BOTH) in refused(capsys, "export", checkpoint, "--data", other, "--output", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_an_ensemble_and_an_average_need_the_same_dictionaries(tiny_data, other, checkpoint, tmp_path, capsys, caplog):
    second = train(other, tmp_path / "second", *MODEL, *TWO_UPDATES)
    with pytest.raises(ValueError, match=rf"^{second}: {SAID.format(BOTH)}.* ensemble need the same"):
        fairseq_luna.load(f"{checkpoint}:{second}", data=tiny_data)
    generate(tiny_data, f"{checkpoint}:{second}")
    assert [message.split(":")[0] for message in said(caplog)] == [str(second)]
    message = refused(capsys, "average", checkpoint, second, "--output", tmp_path / "mean.pt")
    assert (
        message == f"{second}: the source and target dictionaries of its training had other words than in the training"
        f" of {checkpoint}; average checkpoints of one training"
    )


def test_a_converted_checkpoint_has_the_fingerprints_too(tiny_data, tmp_path, capsys):
    saved = train(tiny_data, tmp_path, *TRANSFORMER, *TWO_UPDATES)
    shown(capsys, "convert", saved, "--arch", "mixed_tiny", "--output", tmp_path / "converted.pt")
    before, after = (
        torch.load(file, weights_only=True)["extra_state"][FINGERPRINTS] for file in (saved, tmp_path / "converted.pt")
    )
    assert after == before


@pytest.mark.parametrize(("side", "name"), [("a", "source"), ("b", "target")])
def test_one_dictionary_of_fairseqs_own_model(side, name, tiny_data, tmp_path, caplog):
    saved = train(tiny_data, tmp_path / "trained", *TRANSFORMER, *TWO_UPDATES)
    generate(with_other_words(tiny_data, tmp_path / "other", side), str(saved))
    assert len(said(caplog)) == 1 and SAID.format(f"{name} dictionary") in said(caplog)[0]

"""A model of other languages than those of the command: fairseq's commands warn, and go on."""

import shutil
from pathlib import Path

import pytest

from commands import FAMILIES, generate, run, train
from fairseq_luna.compat import languages

SAID = "{file} says: the translations may be nonsense"


@pytest.fixture(scope="module")
def data(tiny_data, tmp_path_factory):
    """The data of both directions."""
    copied = Path(shutil.copytree(tiny_data, tmp_path_factory.mktemp("both") / "data"))
    for file in list(copied.glob("valid.a-b.*")):
        shutil.copy(file, copied / file.name.replace("a-b", "b-a"))
    return str(copied)


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    flags = ("--optimizer=adam", "--lr=0.01", "--max-update=2", "--disable-validation", "-s=a", "-t=b")
    return train(data, tmp_path_factory.mktemp("a-b"), *FAMILIES["luna"], *flags)


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
    assert not languages.is_needed()

"""The flags of ``fairseq-luna translate`` and ``python -m fairseq_luna.deployed``, with recorded models."""

import shutil
import sys

import pytest

import fairseq_luna
from fairseq_luna.__main__ import main
from fairseq_luna.commands import translate
from fairseq_luna.usage_error import UsageError
from recorded import record

DATA = record.HERE / "prepared" / "bin"
SENTENCES, _ = record.texts()
TEXT = "".join(f"{line}\n" for line in SENTENCES)


@pytest.fixture(scope="module")
def translator():
    return fairseq_luna.load(record.checkpoint(record.EXPORTED), data=DATA)


@pytest.fixture
def said(tmp_path, capfd, monkeypatch):
    """Translates the sentences by a command: the exit status, standard output and standard error."""
    monkeypatch.setattr(translate, "end_at_signals", lambda: None)

    def of(*flags, exported=False, text=TEXT):
        source = tmp_path / "source.txt"
        source.write_bytes(text if isinstance(text, bytes) else text.encode())
        with source.open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            capfd.readouterr()
            if exported:
                program = pytest.importorskip("fairseq_luna.deployed.__main__")
                monkeypatch.setattr(sys, "argv", ["deployed", str(record.HERE / "exported"), *flags])
                status = program.main()
            else:
                checkpoint = record.checkpoint(record.EXPORTED)
                status = main(["translate", str(checkpoint), f"--data={DATA}", *flags])
        return status, *capfd.readouterr()

    return of


@pytest.mark.parametrize("exported", [False, True], ids=["trained", "exported"])
@pytest.mark.parametrize("flag", ["--max-len-b", "--beam", "--nbest", "--batch-size", "--max-tokens"])
def test_a_zero_that_cannot_be_is_refused(said, flag, exported):
    status, output, error = said(f"{flag}=0", exported=exported)
    assert (status, output) == (2, "")
    assert flag.removeprefix("--").replace("-", "_") in error


def test_a_temperature_of_zero_is_refused(said):
    status, _, error = said("--sampling", "--temperature=0")
    assert status == 2 and "temperature 0.0: must be above 0" in error


@pytest.mark.parametrize("exported", [False, True], ids=["trained", "exported"])
def test_a_length_penalty_of_zero_is_used(said, translator, exported):
    status, output, _ = said("--lenpen=0", "--scores", exported=exported)
    expected = translator.translate(SENTENCES, lenpen=0.0, scores=True)
    found = [line.split("\t") for line in output.splitlines()]
    assert status == 0 and [text for _, text in found] == [each.text for each in expected]
    assert [float(score) for score, _ in found] == pytest.approx([each.score for each in expected], abs=1e-3)
    others = translator.translate(SENTENCES, scores=True)
    assert [each.score for each in others] != pytest.approx([each.score for each in expected], abs=1e-3)


@pytest.mark.parametrize("name", ["lenpen", "max_tokens"])
def test_a_zero_of_python_is_given_to_the_exported_engine(tmp_path, name):
    """``False`` is not given, but 0 is, which is equal to it."""
    checkpoint = shutil.copy(record.checkpoint(record.EXPORTED), tmp_path)
    with pytest.raises(UsageError, match=f'{name}: only engine="torch"'):
        fairseq_luna.load(checkpoint, engine="onnx", **{name: 0})

"""The flags of ``fairseq-luna translate`` and ``python -m fairseq_luna.deployed``, with recorded models."""

import gzip
import re
import shutil
import sys

import numpy as np
import pytest
import torch

import fairseq_luna
from fairseq_luna import loading
from fairseq_luna.__main__ import main
from fairseq_luna.commands import translate
from fairseq_luna.usage_error import UnreadableText, UsageError
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
                monkeypatch.setattr(program, "end_at_signals", lambda: None)
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
    # A length is compared with other options by the translator, which has Python's names.
    assert ("max_len_b 0" if flag == "--max-len-b" else f"{flag} 0") in error


@pytest.mark.parametrize(
    ("lines", "flags", "suggested"),
    [(6, (), True), (7, (), False), (6, ("--alignments",), False), (6, ("--bf16",), False)],
    ids=["many", "few", "alignments", "bf16"],
)
def test_the_exported_engine_is_suggested_after_many_lines_that_it_could_translate(
    lines, flags, suggested, said, monkeypatch
):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(translate, "MANY", lines)
    status, output, error = said(*flags)
    assert status == 0 and len(output.splitlines()) == 6
    assert ("--engine onnx is faster" in error) == suggested


def test_a_temperature_of_zero_is_refused(said):
    status, _, error = said("--sampling", "--temperature=0")
    assert status == 2 and "--temperature 0.0: must be above 0" in error


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


@pytest.mark.parametrize("text", ["a\ud800b", "a\0b"], ids=["surrogate", "NUL"])
@pytest.mark.parametrize("exported", [False, True], ids=["trained", "exported"])
def test_text_that_no_file_can_have_is_refused(translator, text, exported):
    model = (
        pytest.importorskip("fairseq_luna.deployed").Translator(record.HERE / "exported") if exported else translator
    )
    for texts in (text, ["one", text]):
        with pytest.raises(UnreadableText, match=r"^'a.*b': "):
            model.translate(texts)


@pytest.mark.parametrize("value", [None, ["a.pt"], b"a.pt", 3], ids=str)
def test_a_path_of_another_type_is_named(value):
    for options in ({}, {"engine": "onnx"}):
        with pytest.raises(TypeError, match="load: path must be"):
            fairseq_luna.load(value, **options)


def test_values_of_another_type_are_named(translator):
    with pytest.raises(TypeError, match="sentences: must be a text or several"):
        translator.translate(np.array("one"))
    assert translator.translate(np.array(SENTENCES)) == translator.translate(iter(SENTENCES))
    with pytest.raises(TypeError, match=r"has no option seed: call torch\.manual_seed"):
        translator.translate("one", seed=1)
    for value in ({}, 3, ["file"]):
        with pytest.raises(TypeError, match="replace_unk: must be True or"):
            translator.translate("one", replace_unk=value)


def test_words_of_a_path_replace_as_those_of_its_name(translator, tmp_path):
    (tmp_path / "words").write_text("one eins zwei\n")
    with pytest.raises(UsageError, match="a line must have a word"):
        translator.translate("one", replace_unk=tmp_path / "words")


@pytest.mark.parametrize("exported", [False, True], ids=["trained", "exported"])
@pytest.mark.parametrize("flag", ["--max-len-a", "--max-len-b", "--min-len"])
def test_a_negative_length_is_refused(said, flag, exported):
    status, _, error = said(f"{flag}=-1", exported=exported)
    assert status == 2 and re.search(f"{flag} -1(.0)?: must be 0 or more$", error)


@pytest.mark.parametrize("exported", [False, True], ids=["trained", "exported"])
def test_lengths_that_exclude_each_other_are_named_with_their_values(said, exported):
    status, _, error = said("--max-len-b=3", "--min-len=5", exported=exported)
    assert status == 2 and re.search(r"max_len_a 0(\.0)?, max_len_b 3: allow .* min_len (asks for )?5", error)


@pytest.mark.parametrize("model", ["", "{file}:", ":{file}"])
def test_an_empty_name_of_a_checkpoint_is_refused(tmp_path, monkeypatch, model):
    monkeypatch.chdir(record.HERE / "trained")
    with pytest.raises(UsageError, match="the name of a checkpoint is empty"):
        fairseq_luna.load(model.format(file=f"{record.EXPORTED}.pt"), data=DATA)


def test_an_exported_folder_is_told_from_a_trained_one():
    with pytest.raises(UsageError, match=r"is an exported model; translate with python -m fairseq_luna\.deployed"):
        fairseq_luna.load(record.HERE / "exported")


def test_gzip_is_named(said):
    status, _, error = said(text=gzip.compress(TEXT.encode()))
    assert status == 2 and "line 1: is gzip, not text; unpack it: zcat FILE |" in error


def test_the_folder_of_prepare_is_taken_for_its_data(translator):
    loaded = fairseq_luna.load(record.checkpoint(record.EXPORTED), data=DATA.parent)
    assert loaded.translate(SENTENCES) == translator.translate(SENTENCES)


def test_a_dictionary_is_not_taken_for_codes(tmp_path):
    file = tmp_path / "codes"
    with pytest.raises(UsageError, match="is a dictionary of fairseq"):
        fairseq_luna.load(record.checkpoint(record.EXPORTED), data=DATA, pieces=DATA / "dict.en.txt")
    for codes, refused in (("a 1\nb 2 #fairseq:overwrite\n", True), ("1 2\n1 a\n", False)):
        file.write_text(codes)
        assert loading._is_dictionary(file) is refused


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_has_advice(said):
    status, _, error = said("--device=cuda")
    assert status == 2 and "this torch finds no GPU: leave it out, for a CPU" in error


@pytest.mark.parametrize(("given", "meant"), [("tranlsate", "translate"), ("avrage", "average")])
def test_a_command_that_is_misspelled_has_a_suggestion(capsys, given, meant):
    assert main([given]) == 2
    assert f"{given}: did you mean {meant}? the commands are" in capsys.readouterr().err

"""Exported models translate as the trained ones do, without torch and fairseq."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import FAMILIES, SIZES, train
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE

import export_translator
import fairseq_luna
from fairseq_luna.usage_error import UsageError
from shared.command import CommandError

pytest.importorskip("onnxscript")
deployed = pytest.importorskip("fairseq_luna.deployed")
comparison = pytest.importorskip("deploying.comparison")
write_folder = pytest.importorskip("deploying.folder").write_folder
first_candidates = pytest.importorskip("fairseq_luna.deployed.search").first_candidates
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
pytestmark = pytest.mark.skipif(TORCH < (2, 7), reason="torch.export of torch 2.6 takes one size of batch alone")

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w1 w1", "w2 w2 w9"]
OPTIONS = {"beam": 3, "max_len_b": 8, "lenpen": 0.6}
TRAINING = (
    "--optimizer=adam",
    "--lr=0.01",
    "--max-epoch=3",
    "--disable-validation",
    "-s=a",
    "-t=b",
    "--encoder-layers=1",
    "--decoder-layers=1",
)
# One graph for a range of source lengths, and one for each length.
MODELS = {
    "luna": (*FAMILIES["luna"], "--max-source-positions=40", "--max-target-positions=40"),
    "block": (*FAMILIES["block"], "--max-source-positions=12", "--max-target-positions=40"),
}


@pytest.fixture(scope="module")
def export(tiny_data, tmp_path_factory):
    """Trains a family and exports it, once: the checkpoint's folder and the exported one."""
    made = {}

    def of(family):
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            train(tiny_data, folder, *MODELS[family], *TRAINING)
            for language in "ab":
                shutil.copy(Path(tiny_data) / f"dict.{language}.txt", folder)
            assert export_translator.main([str(folder), f"--output={folder / 'exported'}"]) == 0
            made[family] = folder
        return made[family], made[family] / "exported"

    return of


@pytest.fixture
def exported(export, tmp_path):
    """A copy of an exported Luna."""
    return shutil.copytree(export("luna")[1], tmp_path / "copy")


@pytest.mark.parametrize("family", MODELS)
def test_translations_and_scores_are_fairseqs(family, export):
    folder, made = export(family)
    model = fairseq_luna.load(folder)
    translator = deployed.Translator(made)
    for max_tokens, min_len in ((1024, 1), (1, 1), (1024, 5)):  # in one batch, and alone; long ones
        hypotheses = model.generate([model.encode(text) for text in TEXTS], **OPTIONS, min_len=min_len)
        found = list(translator.translations(TEXTS, **OPTIONS, max_tokens=max_tokens, min_len=min_len))
        assert [[one.text for one in some] for some in found] == [
            [model.decode(one["tokens"]) for one in some] for some in hypotheses
        ]
        for ours, theirs in zip(found, hypotheses, strict=True):
            assert [one.score for one in ours] == pytest.approx([float(one["score"]) for one in theirs], abs=1e-4)
    assert translator.translate(TEXTS[0], **OPTIONS) == model.translate(TEXTS[0], **OPTIONS)


def test_padding_is_never_a_first_word():
    graphs = SimpleNamespace(words=6, start=lambda source: (np.log([[0.05, 0.5, 0.05, 0.1, 0.1, 0.2]]), None))
    _, _, words, _ = first_candidates(graphs, None, 1)
    assert words.tolist() in ([[5, 3]], [[5, 4]])


def test_lines_are_translated_without_torch_and_fairseq(export):
    _, made = export("luna")
    code = (
        "import runpy, sys; sys.modules.update(torch=None, fairseq=None, onnx=None, tqdm=None);"
        f"sys.argv = ['deployed', {str(made)!r}, '--beam=3', '--max-len-b=8', '--lenpen=0.6'];"
        "runpy.run_module('fairseq_luna.deployed', run_name='__main__')"
    )
    text = f"{TEXTS[0]}\n\n{TEXTS[1]}\n"
    ended = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, timeout=300)
    first, second = deployed.Translator(made).translate(TEXTS[:2], **OPTIONS)
    assert (ended.returncode, ended.stderr, ended.stdout.splitlines()) == (0, "", [first, "", second])


def test_int8_is_smaller_and_translates(export, tmp_path):
    folder, made = export("luna")
    assert export_translator.main([str(folder), f"--output={tmp_path / 'int8'}", "--int8"]) == 0
    whole, small = (sum(file.stat().st_size for file in path.glob("weights.bin")) for path in (made, tmp_path / "int8"))
    assert small < whole
    assert len(deployed.Translator(tmp_path / "int8").translate(TEXTS)) == len(TEXTS)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("settings.json", None, "give a folder that scripts/export_translator.py made"),
        ("settings.json", "{", "settings.json: is damaged"),
        ("settings.json", '{"format": 99}', "has format 99"),
        ("target.txt", None, "target.txt: No such file"),
        ("target.txt", "ÿþ", "target.txt: is damaged"),
        ("step.onnx", "no graph", "step.onnx: cannot be loaded"),
        ("weights.bin", None, "cannot be loaded"),
    ],
)
def test_a_damaged_folder_is_refused(exported, file, content, message):
    if content is None:
        (exported / file).unlink()
    else:
        (exported / file).write_text(content, encoding="latin-1")
    with pytest.raises(UsageError, match=message):
        deployed.Translator(exported).translate(TEXTS[0])


def test_missing_pieces_are_named(exported):
    settings = json.loads((exported / "settings.json").read_text())
    (exported / "settings.json").write_text(json.dumps(settings | {"pieces": True}))
    with pytest.raises(UsageError, match="no such SentencePiece model"):
        deployed.Translator(exported)


def test_text_and_beams_that_do_not_fit_are_refused(export):
    translator = deployed.Translator(export("block")[1])
    with pytest.raises(UsageError, match="a text has 12 pieces, the model reads at most 11"):
        translator.translate("w1 " * 12)
    with pytest.raises(UsageError, match="beam 0: must be from 1 to"):
        translator.translate("w1", beam=0)
    with pytest.raises(UsageError, match="max_len_a, max_len_b: allow 0 words here; min_len asks for 1"):
        translator.translate("w1", max_len_b=0)


def test_what_cannot_be_exported_is_refused(export, tiny_data, tmp_path, capsys):
    folder, made = export("luna")
    assert export_translator.main([str(folder), f"--output={made}"]) == 2
    assert "it exists" in capsys.readouterr().err
    transformer = train(tiny_data, tmp_path, "--arch=transformer", *SIZES, *TRAINING)
    assert export_translator.main([str(transformer), f"--data={tiny_data}", f"--output={tmp_path / 'new'}"]) == 2
    assert "is fairseq's own" in capsys.readouterr().err


def test_another_models_graphs_are_found_to_differ(export, monkeypatch):
    translator = fairseq_luna.load(export("block")[0])
    assert comparison.difference(translator, export("block")[1]) < 1e-5
    assert comparison.difference(translator, export("luna")[1]) > 1e-2
    monkeypatch.setattr(comparison, "distance", lambda *_: float("nan"))
    assert math.isnan(comparison.difference(translator, export("block")[1]))


def test_a_model_with_other_subwords_is_refused(export, tmp_path):
    translator = fairseq_luna.load(export("luna")[0])
    translator.bpe = SubwordNMTBPE.__new__(SubwordNMTBPE)
    with pytest.raises(CommandError, match="only SentencePiece models"):
        write_folder(translator, tmp_path, int8=False)


@pytest.mark.parametrize(
    "found", [1e-3, float("nan"), RuntimeError("another number of steps")], ids=["differs", "nan", "cannot be run"]
)
def test_a_graph_that_is_not_the_model_is_refused(found, export, tmp_path, monkeypatch, capsys):
    def difference(*_):
        if isinstance(found, Exception):
            raise found
        return found

    folder, _ = export("luna")
    monkeypatch.setattr("deploying.folder.write_folder", lambda *_, int8: None)
    monkeypatch.setattr("deploying.comparison.difference", difference)
    assert export_translator.main([str(folder), f"--output={tmp_path / 'new'}"]) == 2
    assert "use python -m fairseq_luna translate" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

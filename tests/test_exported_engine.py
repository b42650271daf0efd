"""``--engine onnx`` and ``load(..., engine="onnx")``: a model is exported once, beside its checkpoint."""

import shutil
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import fairseq_luna
from fairseq_luna import exported_engine, exporting
from fairseq_luna.commands.translate import run  # noqa: F401 (is imported before the command is replaced)
from fairseq_luna.files import locked
from fairseq_luna.usage_error import UsageError
from own_command import refused
from recorded import record

pytest.importorskip("onnxruntime")
deployed = pytest.importorskip("fairseq_luna.deployed")

EXPORTED = record.HERE / "exported"
DATA = record.HERE / "prepared" / "bin"
SENTENCES, _ = record.texts()


@pytest.fixture
def checkpoint(tmp_path):
    """The checkpoint that the recorded folder was exported from, alone in a folder."""
    return shutil.copy(record.checkpoint(record.EXPORTED), tmp_path / "model.pt")


@pytest.fixture
def exports(monkeypatch):
    """A list of the folders that are made, by a copy of the recorded one in place of an export."""
    made = []

    def copy(model, output, **options):
        shutil.copytree(EXPORTED, output)
        made.append((output, options))

    monkeypatch.setattr(exporting, "export_model", copy)
    return made


def test_a_model_is_exported_once_and_again_for_another_checkpoint(checkpoint, exports):
    expected = deployed.Translator(EXPORTED).translate(SENTENCES)
    for _ in range(2):
        translator = fairseq_luna.load(checkpoint, data=DATA, engine="onnx")
        assert translator.translate(SENTENCES) == expected
    [(folder, options)] = exports
    assert folder.parent == checkpoint.parent and folder.name.startswith("model.onnx-")
    assert options["data"] == DATA
    with open(checkpoint, "ab") as file:
        file.write(b"more")
    fairseq_luna.load(checkpoint, data=DATA, engine="onnx")
    fairseq_luna.load(checkpoint, data=DATA.parent, engine="onnx")
    assert len({folder for folder, _ in exports}) == 3


def test_dictionaries_that_were_replaced_are_exported_again(checkpoint, exports, tmp_path):
    data = shutil.copytree(DATA.parent, tmp_path / "data")
    for changed in (None, *data.glob("bin/dict.*.txt"), *data.glob("*.model")):
        if changed is not None:
            with open(changed, "ab") as file:
                file.write(b"\n")
        fairseq_luna.load(checkpoint, data=data, engine="onnx")
        fairseq_luna.load(checkpoint, data=data, engine="onnx")
    assert len(exports) == len({folder for folder, _ in exports}) == 4


def test_dictionaries_that_were_replaced_where_the_training_had_them_are_exported_again(checkpoint, exports, tmp_path):
    data = shutil.copytree(DATA, tmp_path / "somewhere" / "bin")
    state = torch.load(checkpoint, weights_only=True)
    state["cfg"]["task"]["data"] = str(data)
    torch.save(state, checkpoint)
    (data.parent / "sentencepiece").mkdir()
    for model in DATA.parent.glob("*.model"):
        shutil.copy(model, data.parent / "sentencepiece")
    for changed in (None, *data.glob("dict.*.txt"), *data.parent.glob("sentencepiece/*.model")):
        if changed is not None:
            with open(changed, "ab") as file:
                file.write(b"\n")
        for _ in range(2):
            assert fairseq_luna.load(checkpoint, engine="onnx").translate(SENTENCES)
    assert len(exports) == 4
    shutil.rmtree(data)
    assert fairseq_luna.load(checkpoint, engine="onnx").translate(SENTENCES)
    assert len(exports) == 4


def test_an_export_that_fails_leaves_the_earlier_one(checkpoint, exports, tmp_path, monkeypatch):
    data = shutil.copytree(DATA, tmp_path / "bin")
    state = torch.load(checkpoint, weights_only=True)
    state["cfg"]["task"]["data"] = str(data)
    torch.save(state, checkpoint)
    fairseq_luna.load(checkpoint, engine="onnx")
    with open(data / "dict.en.txt", "ab") as file:
        file.write(b"\n")

    def refuse(*_, **__):
        raise UsageError("other words")

    monkeypatch.setattr(exporting, "export_model", refuse)
    with pytest.raises(UsageError, match="other words"):
        fairseq_luna.load(checkpoint, engine="onnx")
    [folder] = Path(checkpoint).parent.glob("model.onnx-*")
    assert (folder / "settings.json").is_file() and (folder / exported_engine.RECORDED).is_file()


def test_a_second_process_waits_for_the_first_ones_export(checkpoint, exports, capsys):
    folder = exported_engine.exported_folder(checkpoint, DATA, None, {"source_lang": None, "target_lang": None})
    loading = threading.Thread(target=lambda: fairseq_luna.load(checkpoint, data=DATA, engine="onnx"))
    with locked(folder):
        loading.start()
        loading.join(timeout=1)
        assert loading.is_alive()
        shutil.copytree(EXPORTED, folder)
        (folder / exported_engine.RECORDED).write_text("{}", encoding="utf-8")
    loading.join(timeout=60)
    assert not loading.is_alive() and exports == []
    assert f"waiting for another process, which makes {folder}" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["x", None])
@pytest.mark.parametrize("name", ["dat", "piece", "enginee"])
def test_a_misspelt_name_is_told_the_nearest(name, value, checkpoint, exports):
    engine = {} if name == "enginee" else {"engine": "onnx"}
    with pytest.raises(TypeError, match=rf"load\(\) has no option {name}; did you mean {{0}}".format(name[:3])):
        fairseq_luna.load(checkpoint, **engine, **{name: value})
    assert exports == []


REFUSED = {
    "engine": ({"engine": "tensorrt"}, "engine tensorrt: choose one of torch, onnx"),
    "device": ({"engine": "onnx", "device": "cuda"}, "device: the exported engine"),
    "precision": ({"engine": "onnx", "bf16": True}, "bf16: only engine"),
    "search": ({"engine": "onnx", "search": "recorded"}, "search: only engine"),
    "of-fairseq": ({"engine": "onnx", "lenpen": 0.6}, "lenpen: only engine"),
    "of-fairseq-and-off": ({"engine": "onnx", "constraints": None}, "constraints: only engine"),
    "unknown-search": ({"search": "fast", "data": DATA}, "search fast \\(--search\\): choose one of fairseq, recorded"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_an_engine_does_not_have_is_refused(options, message, checkpoint, exports):
    with pytest.raises(UsageError, match=message):
        fairseq_luna.load(checkpoint, **options)
    assert exports == []


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_a_name_that_nothing_has_is_told_the_nearest_with_either_engine(engine, checkpoint, exports):
    with pytest.raises(TypeError, match=r"load\(\) has no option bem; did you mean beam"):
        fairseq_luna.load(checkpoint, data=DATA, engine=engine, bem=5)
    with pytest.raises(UsageError, match="truncate_source: only engine") if engine == "onnx" else nullcontext():
        fairseq_luna.load(checkpoint, data=DATA, engine=engine, truncate_source=True)  # a setting of the task
    assert exports == []


@pytest.mark.parametrize("flags", [["--sampling"], ["--bf16"], ["--device=cuda"], ["--alignments"]], ids=str)
def test_flags_that_the_exported_engine_does_not_have_are_named(flags, checkpoint, exports, capsys):
    said = refused(capsys, "translate", checkpoint, "--engine=onnx", *flags)
    assert said.startswith(flags[0].partition("=")[0]) and said.endswith("leave --engine onnx out")


def test_an_ensemble_has_no_exported_engine(checkpoint, exports):
    with pytest.raises(UsageError, match="an ensemble has no exported engine"):
        fairseq_luna.load(f"{checkpoint}:{checkpoint}", engine="onnx")


@pytest.mark.slow
def test_an_exported_engine_translates_as_the_model_does(checkpoint):
    pytest.importorskip("onnxscript")
    model = fairseq_luna.load(checkpoint, data=DATA)
    engine = fairseq_luna.load(checkpoint, data=DATA, engine="onnx")
    assert engine.translate(SENTENCES, beam=3, nbest=2) == model.translate(SENTENCES, beam=3, nbest=2)


def test_the_search_of_a_loaded_model_is_the_one_that_is_asked_for(checkpoint):
    for search in ("recorded", "fairseq"):
        translator = fairseq_luna.load(checkpoint, data=DATA, search=search)
        assert translator.models[0].cfg.search == search
    assert fairseq_luna.load(checkpoint, data=DATA).translate(SENTENCES) == fairseq_luna.load(
        checkpoint, data=DATA, search="recorded"
    ).translate(SENTENCES)

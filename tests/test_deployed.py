"""Exported models translate as the trained ones do, without torch and fairseq."""

import io
import json
import logging
import math
import random
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

import fairseq_luna
from commands import FAMILIES, SIZES, TRANSFORMER, train
from fairseq_luna import silenced_logs
from fairseq_luna.__main__ import main
from fairseq_luna.dictionary_fingerprints import FINGERPRINTS
from fairseq_luna.files import fingerprint
from fairseq_luna.usage_error import UsageError
from own_command import refused

pytest.importorskip("onnxscript")
deployed = pytest.importorskip("fairseq_luna.deployed")
comparison = pytest.importorskip("fairseq_luna.exporting.comparison")
graphs = pytest.importorskip("fairseq_luna.exporting.onnx_graphs")
onnx = pytest.importorskip("onnx")
write_folder = pytest.importorskip("fairseq_luna.exporting.exported_folder").write_folder
first_candidates = pytest.importorskip("fairseq_luna.deployed.onnx_beam_search").first_candidates
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
pytestmark = pytest.mark.skipif(TORCH < (2, 7), reason="torch.export of torch 2.6 takes one size of batch alone")

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w1 w1", "w2 w2 w9"]
OPTIONS = {"beam": 3, "max_len_b": 8, "lenpen": 0.6}
TRAINING = (
    *("--optimizer=adam", "--lr=0.01", "--max-epoch=3", "--disable-validation", "-s=a", "-t=b"),
    *("--encoder-layers=1", "--decoder-layers=1"),
)
# One graph for a range of source lengths, and one for each length.
MODELS = {
    "luna": (*FAMILIES["luna"], "--max-source-positions=40", "--max-target-positions=40"),
    "block": (
        *(*FAMILIES["block"], "--max-source-positions=12", "--max-target-positions=40"),
        *("--encoder-learned-pos", "--decoder-learned-pos"),
    ),
    "gated-delta": (
        *("--arch=mixed_tiny", "--encoder-self-attention=gated-delta", "--decoder-self-attention=gated-delta"),
        *(*SIZES, "--max-source-positions=24", "--max-target-positions=40"),
    ),
    "softmax": (
        *("--arch=mixed_tiny", "--encoder-self-attention=softmax", "--decoder-self-attention=softmax", *SIZES),
        *("--max-source-positions=40", "--max-target-positions=40"),
    ),
    "decay": (
        *("--arch=mixed_tiny", "--encoder-self-attention=gated-rfa", "--decoder-self-attention=retention", *SIZES),
        *("--max-source-positions=12", "--max-target-positions=40"),
    ),
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
            assert main(["export", str(folder), f"--output={folder / 'exported'}"]) == 0
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


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float64, {"Add", "Sin"}), (torch.float32, {"Cos"})])
def test_cosines_of_fp64_are_sines(dtype, expected):
    """onnxruntime 1.23, the last for Python 3.10, has no cosine of fp64."""

    class Cosine(torch.nn.Module):
        def forward(self, x):
            return x.cos()

    program = graphs.export_program(Cosine(), (torch.linspace(-9, 9, 7, dtype=dtype),), ({},))
    model = graphs.to_onnx(program, ["x"], ["y"])
    assert {node.op_type for node in model.graph.node} == expected


def test_padding_is_never_a_first_word():
    graphs = SimpleNamespace(vocabulary_size=6, start=lambda source: (np.log([[0.05, 0.5, 0.05, 0.1, 0.1, 0.2]]), None))
    _, _, words, _ = first_candidates(graphs, None, 1)
    assert words.tolist() in ([[5, 3]], [[5, 4]])


def test_lines_are_translated_without_torch_and_fairseq(export):
    """Until one cannot be read, which ends the command in one line."""
    _, made = export("luna")
    code = (
        "import runpy, sys; sys.modules.update(torch=None, fairseq=None, onnx=None, tqdm=None);"
        f"sys.argv = ['deployed', {str(made)!r}, '--beam=3', '--max-len-b=8', '--lenpen=0.6'];"
        "runpy.run_module('fairseq_luna.deployed', run_name='__main__')"
    )
    text = f"{TEXTS[0]}\n\n{TEXTS[1]}\n" + "w1 " * 100
    ended = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, timeout=300)
    first, second = deployed.Translator(made).translate(TEXTS[:2], **OPTIONS)
    assert (ended.returncode, ended.stdout.splitlines()) == (2, [first, "", second])
    [line] = ended.stderr.splitlines()
    assert line.startswith("fairseq_luna.deployed: line 4: a text has 100 pieces, the model reads at most 39")


def test_n_best_lists_scores_and_batches_are_those_of_the_trained_model(export, monkeypatch):
    folder, made = export("luna")
    translator, model = deployed.Translator(made), fairseq_luna.load(folder)
    expected = model.translate(TEXTS, nbest=2, scores=True, **OPTIONS)
    for size in (None, 1):
        found = translator.translate((text for text in TEXTS), nbest=2, scores=True, batch_size=size, **OPTIONS)
        for ours, theirs in zip(found, expected, strict=True):
            assert [one.text for one in ours] == [one.text for one in theirs]
            assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
    with pytest.raises(UsageError, match="nbest 4: must be at most beam 3"):
        translator.translate(TEXTS, nbest=4, **OPTIONS)
    sizes, start = [], translator.graphs.start
    monkeypatch.setattr(translator.graphs, "start", lambda source: sizes.append(len(source)) or start(source))
    translator.translate(TEXTS, batch_size=3, **OPTIONS)
    assert sizes == [3, 1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["{made}", "--sampling"], "--sampling: is not supported by exported models; use fairseq-luna"),
        (["{made}", "--fp16"], "--fp16: an exported model computes on a CPU"),
        (["{made}", "--bem", "3"], "unrecognized arguments: --bem"),
        (["{made}", "--nbest", "9"], "--nbest 9: must be at most --beam 5"),
        (["none"], "none/settings.json: No such file or directory; give a folder that fairseq-luna export made"),
    ],
    ids=["sampling", "fp16", "unknown", "nbest", "folder"],
)
def test_what_an_exported_model_does_not_have_is_one_line(tmp_path, capsys, monkeypatch, given, said):
    from fairseq_luna.deployed import __main__ as program

    monkeypatch.setattr(program, "end_at_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["deployed", *(word.format(made=tmp_path) for word in given)])
    assert program.main() == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_decoder_that_cannot_be_exported_is_refused_first(tiny_data, tmp_path, capsys, monkeypatch):
    train(tiny_data, tmp_path, *MODELS["luna"], *TRAINING)
    made = []

    def onnx_of(program, inputs, outputs):
        made.append(inputs)
        raise torch.onnx.OnnxExporterError("no such operator\nin two lines")

    monkeypatch.setattr(graphs, "to_onnx", onnx_of)
    said = refused(capsys, "export", tmp_path, "--data", tiny_data, "--output", tmp_path / "out")
    cannot = "its attentions cannot be written as ONNX (OnnxExporterError)"
    assert said == f"{tmp_path}: {cannot}; use fairseq-luna translate"
    assert len(made) == 1 and "words" in made[0] and not (tmp_path / "out").exists()


def graphs_of(made):
    """The graphs of an exported folder, which take long to make."""
    settings = json.loads((made / "settings.json").read_text())
    starts = [graphs.Graph(**start, model=onnx.load(made / start["file"])) for start in settings["starts"]]
    return [*starts, graphs.Graph("step.onnx", onnx.load(made / "step.onnx"))]


@pytest.mark.parametrize("family", ["luna", "softmax"])
def test_a_step_writes_into_no_slices(family, export):
    """A mask that is written into zeros is a dozen operators in each layer; where it is selected, it is one."""
    [*_, step] = graphs_of(export(family)[1])
    assert not {"ScatterND", "ScatterElements"} & {node.op_type for node in step.model.graph.node}


def test_sums_are_not_fused_with_layer_norms(exported):
    """onnxruntime's kernel for both takes three times as long as one for each."""
    translator, computed = deployed.Translator(exported), exported / "computed.onnx"
    translator.graphs.options.optimized_model_filepath = str(computed)
    translator.graphs.session("step.onnx")
    operators = {node.op_type for node in onnx.load(computed, load_external_data=False).graph.node}
    assert "LayerNormalization" in operators and "SkipLayerNormalization" not in operators


def test_silencing_logs_leaves_logging_as_it_was():
    logging.disable(logging.INFO)
    try:
        with silenced_logs.silence_all_loggers(logging.WARNING), silenced_logs.silence_all_loggers(logging.INFO):
            assert logging.root.manager.disable == logging.WARNING
        assert logging.root.manager.disable == logging.INFO
    finally:
        logging.disable(logging.NOTSET)


def test_int8_is_smaller_and_translates(export, tmp_path, monkeypatch):
    folder, made = export("luna")
    monkeypatch.setattr("fairseq_luna.exporting.exported_folder.make_graphs", lambda *_: graphs_of(made))
    assert main(["export", str(folder), f"--output={tmp_path / 'int8'}", "--int8"]) == 0
    whole, small = ((path / "weights.bin").stat().st_size for path in (made, tmp_path / "int8"))
    assert small < whole
    assert len(deployed.Translator(tmp_path / "int8").translate(TEXTS)) == len(TEXTS)


def test_a_changed_or_missing_file_is_refused(speaking):
    _, made = speaking
    names = sorted(path.name for path in made.iterdir())
    assert set(names) > {"pieces.model", "settings.json", "source.txt", "start.onnx", "target.txt", "weights.bin"}
    for name in names:
        whole = (made / name).read_bytes()
        for changed in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
            (made / name).write_bytes(changed)
            with pytest.raises(UsageError, match=rf"{name}: (has|is damaged)"):
                deployed.Translator(made)
        if name != "settings.json":
            (made / name).unlink()
            with pytest.raises(UsageError, match=f"{name}: No such file"):
                deployed.Translator(made)
        (made / name).write_bytes(whole)
    assert deployed.Translator(made)
    whole = (made / "settings.json").read_bytes()
    for content, said in (
        ('{"format": 3}', "settings.json: is damaged"),
        ('{"format": 99}', "was exported in format 99"),
    ):
        (made / "settings.json").write_text(content)
        with pytest.raises(UsageError, match=said):
            deployed.Translator(made)
    (made / "settings.json").unlink()
    with pytest.raises(UsageError, match="give a folder that fairseq-luna export made"):
        deployed.Translator(made)
    (made / "settings.json").write_bytes(whole)


def test_a_graph_that_onnxruntime_cannot_load_is_named(exported):
    (exported / "step.onnx").write_text("no graph")
    settings = json.loads((exported / "settings.json").read_text())
    settings["files"]["step.onnx"] = fingerprint(exported / "step.onnx")
    (exported / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(UsageError, match=r"step\.onnx: cannot be loaded"):
        deployed.Translator(exported).translate(TEXTS[0])


def test_threads_share_the_graphs(exported, monkeypatch):
    """The second thread translates while the first loads."""
    translator = deployed.Translator(exported)
    expected = deployed.Translator(exported).translate(TEXTS, **OPTIONS)
    first, begun = threading.get_ident(), []

    class Outputs(dict):
        def __setitem__(self, name, value):
            if threading.get_ident() == first and not begun:
                begun.append(pool.submit(translator.translate, TEXTS, **OPTIONS))
                wait(begun, timeout=1)  # it cannot end before the first has loaded
            super().__setitem__(name, value)

    monkeypatch.setattr(translator.graphs, "outputs", Outputs())
    with ThreadPoolExecutor(1) as pool:
        assert translator.translate(TEXTS, **OPTIONS) == expected
        assert begun[0].result() == expected


@pytest.fixture(scope="module")
def speaking(export, tmp_path_factory):
    """A model of SentencePiece's pieces, some of them white space, and its export: those of Luna with other words."""
    folder, made = export("luna")
    copied = Path(shutil.copytree(folder, tmp_path_factory.mktemp("speaking") / "model"))
    processor = pieces_of("identity", vocab_size=23)
    (copied / "joint.model").write_bytes(processor.serialized_model_proto())
    lines = "".join(f"{processor.id_to_piece(number)} 1\n" for number in range(3, 23))
    for language in "ab":
        (copied / f"dict.{language}.txt").write_text(lines, encoding="utf-8")
    state = torch.load(copied / "checkpoint_last.pt", weights_only=True)
    del state["extra_state"][FINGERPRINTS]  # of the words that it was trained with
    torch.save(state, copied / "checkpoint_last.pt")
    shutil.rmtree(copied / "exported")
    (copied / "exported").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairseq_luna.exporting.exported_folder.make_graphs", lambda *_: graphs_of(made))
        write_folder(fairseq_luna.load(copied), copied / "exported", int8=False)
    return copied, copied / "exported"


def test_pieces_that_the_dictionary_of_an_older_export_lacks_are_cut_into_those_that_it_has(speaking, tmp_path):
    made = shutil.copytree(speaking[1], tmp_path / "exported")
    now = deployed.Translator(made)
    lacking = next(piece for piece in now.pieces.encode("talks walk", out_type=str) if len(piece) > 2)
    words = (made / "source.txt").read_text(encoding="utf-8")
    (made / "source.txt").write_text(words.replace(f"{lacking} ", "zoo "), encoding="utf-8")
    settings = json.loads((made / "settings.json").read_text())
    settings["files"]["source.txt"] = fingerprint(made / "source.txt")
    (made / "settings.json").write_text(json.dumps(settings))
    old = deployed.Translator(made)
    assert lacking not in old.pieces.encode("talks walk", out_type=str)
    assert old.unknown_tokens("talks walk") == (0, len(old.encode("talks walk")) - 1)
    assert old.unknown_tokens("talk \u03a9")[0] == 1 and old.unknown_tokens("") == (0, 0)


def pieces_of(rule, vocab_size):
    """A SentencePiece model with white space among its pieces, where the normalization leaves it."""
    draw, model = random.Random(0), io.BytesIO()
    words = [*WHITE[:8], *("walk", "walks", "talk")]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(draw.choice(["", " "]).join(draw.choices(words, k=9)) for _ in range(200)),
        model_writer=model,
        normalization_rule_name=rule,
        remove_extra_whitespaces=False,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


WHITE = [chr(code) for code in range(sys.maxunicode) if chr(code).isspace() and chr(code) not in "\n\r "]
INVISIBLE = ["\u200b", "\u00ad", "\ufeff", "\u2060"]


def odd_lines():
    """Every white space alone, at the ends and between words, and 1,000 lines of all sorts."""
    draw = random.Random(1)
    odd = [*WHITE, *INVISIBLE, " ", "  ", "\u2581", "@@", "<unk>", "\u00e9", "e\u0301", "\u6f22", "\U0001f600"]
    odd += 9 * ["walk", "talks", "x"]
    yield from [text for space in [*WHITE, *INVISIBLE] for text in (space, f"walk{space}talk", f"{space}walk {space}")]
    yield from ["".join(draw.choices(odd, k=draw.randint(0, 12))) for _ in range(1000)]


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc", None])
def test_text_is_cut_as_fairseq_cuts_it(export, tmp_path, rule):
    folder, made = export("luna")
    theirs, ours = fairseq_luna.load(folder, pieces="none"), deployed.Translator(made)
    if rule is not None:
        processor = pieces_of(rule, vocab_size=40)
        file = tmp_path / "joint.model"
        file.write_bytes(processor.serialized_model_proto())
        theirs.bpe = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(file)))
        ours.pieces = processor
        dictionary = Dictionary()
        for number in range(3, processor.get_piece_size()):
            dictionary.add_symbol(processor.id_to_piece(number))
        theirs.src_dict = theirs.tgt_dict = dictionary
        ours.symbols = dictionary.symbols
        ours.numbers = dictionary.indices
    translated = 0
    for text in odd_lines():
        if found := ours.encode(text):
            translated += 1
            assert found == theirs.encode(text).tolist(), ascii(text)
            assert ours.decode(found) == theirs.decode(torch.tensor(found)), ascii(text)
        else:
            assert theirs.translate(text) == ""
    assert translated > 800


def test_words_are_not_read_as_pieces(speaking, tmp_path, monkeypatch):
    """Of a model that was exported for text in pieces; one without its subword model is not exported by mistake."""
    folder, made = speaking
    copied = shutil.copytree(folder, tmp_path / "model", ignore=shutil.ignore_patterns("*.model", "exported"))
    assert main(["export", str(copied), f"--output={tmp_path / 'new'}"]) == 2
    monkeypatch.setattr("fairseq_luna.exporting.exported_folder.make_graphs", lambda *_: ())
    monkeypatch.setattr("fairseq_luna.exporting.comparison.log_probability_differences", lambda *_: (0.0, 0.0))
    assert main(["export", str(copied), f"--output={tmp_path / 'new'}", "--pieces=none"]) == 0
    settings = json.loads((made / "settings.json").read_text())
    new = json.loads((tmp_path / "new" / "settings.json").read_text())
    files = {name: marks for name, marks in settings["files"].items() if name != "pieces.model"}
    (made / "settings.json").write_text(json.dumps(settings | {"pieces": new["pieces"], "files": files}))
    with pytest.raises(UsageError, match=r"walk talk \.\.\.: has no pieces of SentencePiece; export .* --pieces"):
        deployed.Translator(made).translate("walk talk")
    assert deployed.Translator(made).translate("\u2581walk", **OPTIONS)
    (made / "settings.json").write_text(json.dumps(settings))


def test_text_without_pieces_has_no_translation(speaking):
    folder, made = speaking
    ours, theirs = deployed.Translator(made), fairseq_luna.load(folder)
    texts = ["", "walk", " ", *WHITE[:3], "walks talk", *INVISIBLE, "\u2581", "talk"]
    expected = theirs.translate(texts, **OPTIONS)
    assert ours.translate(texts, **OPTIONS) == expected == [ours.translate(text, **OPTIONS) for text in texts]
    assert [bool(text) for text in expected] == [text in ("walk", "walks talk", "talk") for text in texts]
    [nothing] = next(ours.translations([""]))
    assert (nothing.text, nothing.score) == ("", 0.0)
    assert ours.translate([]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam 0: must be from 1 to"),
        ({"lenpen": 1e300}, r"lenpen 1e\+300: too large"),
        ({"max_len_a": -1e308}, "max_len_a -1e\\+308: must be 0 or more"),
        ({"max_len_b": 0}, "max_len_a 0, max_len_b 0: allow 0 tokens here; min_len asks for 1"),
        ({"min_len": math.nan}, "min_len nan: must be a finite number"),
    ],
)
def test_numbers_that_cannot_be_are_refused(export, options, message):
    with pytest.raises(UsageError, match=message):
        deployed.Translator(export("luna")[1]).translate(TEXTS, **options)


def test_the_largest_length_is_the_models(export):
    translator = deployed.Translator(export("luna")[1])
    assert translator.translate(TEXTS, beam=2, max_len_a=1e308) == translator.translate(TEXTS, beam=2, max_len_b=1000)


def test_what_cannot_be_exported_is_refused(export, tiny_data, tmp_path, monkeypatch, capsys):
    folder, made = export("luna")
    assert "it exists" in refused(capsys, "export", folder, f"--output={made}")
    transformer, new = train(tiny_data, tmp_path, *TRANSFORMER, "--max-update=1", "-s=a", "-t=b"), tmp_path / "new"
    said = refused(capsys, "export", transformer, f"--data={tiny_data}", f"--output={new}")
    assert "is fairseq's own" in said
    assert "an ensemble cannot be exported" in refused(capsys, "export", f"{folder}:{folder}", f"--output={new}")
    translator = fairseq_luna.load(folder)
    for part, value, said in (
        ("task", TranslationMultiSimpleEpochTask, "TranslationMultiSimpleEpochTask: may add language symbols"),
        ("bpe", SubwordNMTBPE, "only SentencePiece models"),
    ):
        with monkeypatch.context() as patch, pytest.raises(UsageError, match=said):
            patch.setattr(translator, part, value.__new__(value))
            write_folder(translator, new, int8=False)


def test_another_models_graphs_are_found_to_differ(export, monkeypatch):
    translator = fairseq_luna.load(export("block")[0])
    assert max(comparison.log_probability_differences(translator, export("block")[1])) < 1e-5
    assert min(comparison.log_probability_differences(translator, export("luna")[1])) > 1e-2
    monkeypatch.setattr(comparison, "largest_difference", lambda *_: float("nan"))
    assert all(map(math.isnan, comparison.log_probability_differences(translator, export("block")[1])))


def test_a_difference_in_few_words_is_told_from_one_in_many(export, monkeypatch):
    translator = fairseq_luna.load(export("block")[0])
    for found, expected in (([0.0] * 199 + [1.0], (1.0, 0.0)), ([0.0] * 98 + [1.0] * 2, (1.0, 1.0))):
        monkeypatch.setattr(comparison, "batch_differences", lambda *_, found=found: iter(found))
        assert comparison.log_probability_differences(translator, export("block")[1]) == expected


@pytest.mark.parametrize(
    "found",
    [(2e-4, 2e-4), (2e-3, 0.0), (math.nan, math.nan), RuntimeError("another number of steps")],
    ids=["differs", "differs much in few words", "nan", "cannot be run"],
)
def test_a_graph_that_is_not_the_model_is_refused(found, export, tmp_path, monkeypatch, capsys):
    def compare(*_):
        if isinstance(found, Exception):
            raise found
        return found

    folder, _ = export("luna")
    monkeypatch.setattr("fairseq_luna.exporting.exported_folder.write_folder", lambda *_, int8: None)
    monkeypatch.setattr("fairseq_luna.exporting.comparison.log_probability_differences", compare)
    assert "use fairseq-luna translate" in refused(capsys, "export", folder, f"--output={tmp_path / 'new'}")
    assert not list(tmp_path.iterdir())

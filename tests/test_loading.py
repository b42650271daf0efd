"""``fairseq_luna.load`` and ``fairseq-luna translate``: a trained model translates text."""

import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
import sentencepiece
import torch
from fairseq.models import MODEL_REGISTRY

import fairseq_luna
from commands import FAMILIES, run, train
from fairseq_luna import __main__ as command
from fairseq_luna.commands import translate
from fairseq_luna.dictionary_fingerprints import FINGERPRINTS
from fairseq_luna.exporting.decoder_step import EncoderForExport
from fairseq_luna.line_translation import end_at_signals, translate_lines
from fairseq_luna.loading import load_translator
from fairseq_luna.text_files import decode_lines
from fairseq_luna.usage_error import UsageError

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9"]
SIZES = {"max_len_b": 8, "beam": 3}


@pytest.fixture(scope="module")
def folder(tiny_data, tmp_path_factory):
    """A folder with a trained Luna and its dictionaries."""
    made = tmp_path_factory.mktemp("model")
    flags = ("--optimizer=adam", "--lr=0.01", "--max-epoch=4", "--disable-validation", "-s=a", "-t=b")
    train(tiny_data, made, *FAMILIES["luna"], *flags)
    for language in "ab":
        shutil.copy(Path(tiny_data) / f"dict.{language}.txt", made)
    return made


@pytest.fixture(scope="module")
def translator(folder):
    return fairseq_luna.load(folder)


def of_words(folder, copy, counts):
    """A copy of the model's folder with these words, and others up to its twenty."""
    copy = Path(shutil.copytree(folder, copy))
    counts = {**counts, **{f"w{number}": 9 for number in range(20 - len(counts))}}
    for language in "ab":
        lines = "".join(f"{word} {count}\n" for word, count in counts.items())
        (copy / f"dict.{language}.txt").write_text(lines, encoding="utf-8")
    state = torch.load(copy / "checkpoint_last.pt", weights_only=True)
    del state["extra_state"][FINGERPRINTS]  # of the words that it was trained with
    torch.save(state, copy / "checkpoint_last.pt")
    return copy


def learn_pieces(file, words):
    """Write a SentencePiece model with SentencePiece's own rules, as earlier versions of fairseq-luna prepare did."""
    draw = random.Random(0)
    lines = (" ".join(draw.choices(words, k=5)) for _ in range(50))
    options = {"vocab_size": 19, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_prefix=str(file.with_suffix("")), **options)


@pytest.fixture(scope="module")
def speaking(folder, tmp_path_factory):
    """The folder with a SentencePiece model and its pieces instead of the words."""
    made = tmp_path_factory.mktemp("speaking")
    learn_pieces(made / "joint.model", ["walking", "talked", "walks", "talking"])
    processor = sentencepiece.SentencePieceProcessor(model_file=str(made / "joint.model"))
    pieces = [processor.id_to_piece(number) for number in range(3, 19)]
    copied = of_words(folder, made / "model", dict.fromkeys([*pieces, "w1", "w2", "w3", "w4"], 1))
    (made / "joint.model").rename(copied / "joint.model")
    return copied


@pytest.fixture(scope="module")
def speaks(speaking):
    return load_translator(speaking)


def test_pieces_that_an_old_dictionary_lacks_are_cut_into_those_that_it_has(speaks, speaking, tmp_path):
    """fairseq-preprocess left out pieces that stand in the training text only as parts of longer ones."""
    text = "walks talked"
    lacking = next(piece for piece in speaks.apply_bpe(text).split() if len(piece) > 1)
    copied = Path(shutil.copytree(speaking, tmp_path / "model"))
    for language in "ab":
        words = (copied / f"dict.{language}.txt").read_text(encoding="utf-8")
        (copied / f"dict.{language}.txt").write_text(words.replace(f"{lacking} 1", "zoo 1"), encoding="utf-8")
    old = load_translator(copied)
    assert lacking not in old.apply_bpe(text).split()
    assert old.remove_bpe(old.apply_bpe(text)) == text
    assert old.unknown_tokens(text) == (0, len(old.apply_bpe(text).split()))
    assert not old.encode(text).eq(old.src_dict.unk()).any()
    assert old.unknown_tokens("Ω walked")[0] == 1
    assert speaks.encode(text).tolist() == load_translator(speaking).encode(text).tolist()


@pytest.mark.parametrize("named", [True, False], ids=["named", "found"])
def test_the_subword_model_of_another_text_is_refused(speaking, tmp_path, named):
    copied = Path(shutil.copytree(speaking, tmp_path / "model"))
    other = (tmp_path if named else copied) / "joint.model"
    learn_pieces(other, ["zoo", "puff", "hymn", "jump"])
    with pytest.raises(UsageError, match=r"has \d of the 20 pieces of the dictionary.*--pieces") as refused:
        load_translator(copied, pieces=other if named else None)
    assert "\n" not in str(refused.value)


def test_translations_and_scores_are_those_of_fairseq_interactive(translator, folder, tmp_path, capsys):
    source = tmp_path / "source.txt"
    source.write_text("\n".join(TEXTS) + "\n")
    run(
        "interactive",
        *(str(folder), "--user-dir=" + str(Path(command.__file__).parent), f"--path={folder}/checkpoint_last.pt"),
        *("--cpu", f"--input={source}", "--source-lang=a", "--target-lang=b", "--buffer-size=3", "--max-tokens=100"),
        *(f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()),
    )
    expected = re.findall(r"^H-\d+\t(\S+)\t(.*)$", capsys.readouterr().out, flags=re.M)
    assert translator.translate(TEXTS, **SIZES) == [text for _, text in expected]
    assert translator.translate(TEXTS[0], **SIZES) == expected[0][1]
    best = [found[0] for found in translator.generate([translator.encode(text) for text in TEXTS], **SIZES)]
    # fairseq-interactive prints scores to the base 2.
    assert [float(one["score"]) / 0.6931 for one in best] == pytest.approx([float(s) for s, _ in expected], abs=1e-3)


def test_alignments_can_be_asked_for_later(folder, translator):
    tokens = [translator.encode(text) for text in TEXTS]
    hub = MODEL_REGISTRY["luna"].from_pretrained(str(folder), "checkpoint_last.pt")
    from_the_start = load_translator(folder, print_alignment="hard")
    expected = [best["alignment"] for best, *_ in from_the_start.generate(tokens, **SIZES)]
    assert all(expected)
    for model in (translator, hub):
        assert model.generate(tokens[0], **SIZES)[0]["attention"].numel() == 0
        assert [best["alignment"] for best, *_ in model.generate(tokens, print_alignment="hard", **SIZES)] == expected
        assert model.generate(tokens[0], **SIZES)[0]["attention"].numel() == 0


def test_threads_share_a_translator_and_not_each_others_options(folder, monkeypatch):
    """Each call in another thread begins and ends while one with other options is at work."""
    shared = load_translator(folder, max_tokens=8)
    tokens = [shared.encode(text) for text in TEXTS]
    with_alignment = {"print_alignment": "hard", **SIZES}
    calls = {
        "alignments": lambda: [best["alignment"] for best, *_ in shared.generate(tokens, **with_alignment)],
        "attention": lambda: [best["attention"].numel() for best, *_ in shared.generate(tokens, **SIZES)],
        "long": lambda: shared.translate("w1 " * 20, **SIZES),
    }
    expected = {name: call() for name, call in calls.items()}
    assert all(expected["alignments"]) and not any(expected["attention"])
    step, inside = shared.task.inference_step, {}

    def interrupted(*args, **options):
        if threading.current_thread() is threading.main_thread():
            with ThreadPoolExecutor(1) as other:
                inside.update({name: other.submit(call).result() for name, call in calls.items()})
        return step(*args, **options)

    monkeypatch.setattr(shared.task, "inference_step", interrupted)
    for name, call in calls.items():
        assert (call(), inside) == (expected[name], expected)
    assert shared.cfg.dataset.max_tokens == 8


def test_an_ensemble_is_loaded_and_not_exported_as_one(folder):
    both = load_translator(f"{folder}:{folder}/checkpoint_last.pt")
    assert both.translate(TEXTS, **SIZES) == load_translator(folder).translate(TEXTS, **SIZES)
    with pytest.raises(UsageError, match=r"an ensemble of 2 models: export each of its \.models"):
        EncoderForExport(both)


NOTHING = ("", "  ", "\t\u3000\u0085", "\u200b", "\u00ad", "\ufeff\u200b\u00ad", "\u2581")


def test_text_without_pieces_has_no_translation(translator, speaks):
    for model in (translator, speaks):
        assert [model.translate(text, **SIZES) for text in NOTHING] == [""] * len(NOTHING)
        assert model.translate(list(NOTHING), **SIZES) == [""] * len(NOTHING)
        assert model.sample([], **SIZES) == []
    expected = translator.translate(TEXTS, **SIZES)
    assert translator.translate([*NOTHING, TEXTS[2], *NOTHING, *TEXTS[:2]], **SIZES) == [
        *[""] * len(NOTHING), expected[2], *[""] * len(NOTHING), *expected[:2]
    ]  # fmt: skip


def test_the_places_of_sentences_do_not_change(translator):
    """A function that restricts words gets the number of the sentence, and skipped sentences leave ""."""
    words = {0: "w1", 2: "w2"}

    def allowed(sentence, prefix):
        return [translator.tgt_dict.index(words[sentence]), translator.tgt_dict.eos()]

    found = translator.translate([TEXTS[0], "", TEXTS[1]], prefix_allowed_tokens_fn=allowed, **SIZES)
    assert [set(text.split()) for text in found] == [{"w1"}, set(), {"w2"}]
    with_long = [TEXTS[0], "w1 " * 2000, TEXTS[1]]
    found = translator.translate(with_long, skip_invalid_size_inputs=True, **SIZES)
    first, second = translator.translate(TEXTS[:2], **SIZES)
    assert found == [first, "", second]


def test_lines_keep_their_order_and_empty_ones_stay_empty(translator):
    lines = ["\n", TEXTS[2] + "\r\n", "  \n", *TEXTS[:2], ""]
    expected = dict(zip(TEXTS, translator.translate(TEXTS, **SIZES), strict=True))
    for size in (1, 2, 100):
        found = list(translate_lines(translator, lines, size, **SIZES))
        assert found == [expected.get(line.strip(), "") for line in lines]
    read = iter(TEXTS)
    assert next(translate_lines(translator, read, 2, **SIZES)) == expected[TEXTS[0]]
    assert list(read) == TEXTS[2:]  # not read yet


def test_a_line_that_cannot_be_translated_takes_no_others_with_it(translator):
    one, other = translator.translate(TEXTS[:2], **SIZES)
    long = "w1 " * 2000
    for lines, size, said, kept in (
        ([*TEXTS[:2], long, TEXTS[0]], 100, "line 3: a sentence has 2001 pieces", [one, other]),
        ([*TEXTS[:2], "", long, TEXTS[0]], 2, "line 4: a sentence has 2001 pieces", [one, other, ""]),
        (
            decode_lines([b"\xef\xbb\xbfw4", b"w1\xff", b"w2"]),
            100,
            r"line 2: not UTF-8 \(invalid start byte at byte 3\)",
            [other],
        ),
        (decode_lines([b"w4\n", b"w\x001"]), 100, "line 2: has a NUL byte at byte 2", [other]),
        (decode_lines(["w4\n".encode("utf-16-le"), b"\0"]), 1, "line 1: is UTF-16LE, not UTF-8; convert it: iconv", []),
    ):
        found = []
        with pytest.raises(UsageError, match=said):
            found.extend(translate_lines(translator, lines, size, **SIZES))
        assert found == kept


LOGS = """
import logging, sys
import fairseq_luna
logging.getLogger("another").debug("before")
translator = fairseq_luna.load(sys.argv[1], max_source_positions=99)
translator.translate("w1 w2", max_len_b=8)
logging.getLogger("another").debug("after")
"""


def test_what_fairseq_logs_is_not_shown(folder):
    environment = {name: value for name, value in os.environ.items() if name != "LOGLEVEL"}
    command = [sys.executable, "-c", LOGS, str(folder)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert not re.search("fairseq|another|pin_memory", ended.stderr), ended.stderr


def test_a_level_of_its_logger_shows_what_fairseq_logs(folder, caplog):
    fairseq_luna.load(folder)
    assert caplog.records == []
    with caplog.at_level("INFO", logger="fairseq"):
        fairseq_luna.load(folder)
    assert any("dictionary: 24 types" in record.getMessage() for record in caplog.records)


def test_what_is_verbose_is_shown(translator, caplog):
    with caplog.at_level("INFO"):
        translator.translate(TEXTS[0], **SIZES)
        assert caplog.records == []
        text = translator.translate(TEXTS[0], verbose=True, **SIZES)
    [best, *_] = (said for said in caplog.messages if said.startswith("H\t"))
    assert best.endswith(f"\t{text}")


def test_ctrl_c_prints_no_traceback(folder, translator):
    """If it follows the first translation, which has the command's flags."""
    expected = translator.translate(TEXTS[2], max_len_b=1)
    ended = subprocess.Popen(
        [sys.executable, "-m", "fairseq_luna", "translate", str(folder), "--buffer-size=1", "--max-len-b=1"],
        **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )
    with ended:
        ended.stdin.write(f"{TEXTS[2]}\n")
        ended.stdin.flush()
        assert ended.stdout.readline() == f"{expected}\n"
        ended.send_signal(signal.SIGINT)
        printed = ended.communicate(timeout=300)[1]
    assert "Traceback" not in printed and "KeyboardInterrupt" not in printed
    assert ended.returncode == -signal.SIGINT


def test_a_background_job_goes_on_at_ctrl_c(monkeypatch):
    monkeypatch.setattr(signal, "signal", set_handlers := mock.Mock())
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)
    end_at_signals()
    assert mock.call(signal.SIGINT, signal.SIG_DFL) not in set_handlers.call_args_list


@pytest.mark.parametrize(("flag", "said"), [("--lenpen=inf", "--lenpen inf"), ("--buffer-size=0", "--buffer-size 0")])
def test_numbers_of_the_command_are_checked_before_the_model_is_loaded(tmp_path, monkeypatch, capsys, flag, said):
    monkeypatch.setattr(translate, "end_at_signals", lambda: None)
    assert command.main(["translate", str(tmp_path / "no-such-model"), flag]) == 2
    assert capsys.readouterr().err.startswith(f"fairseq-luna translate: {said}: must be a ")


def test_the_subword_model_beside_the_checkpoint_is_used(speaks, speaking):
    pieces = speaks.apply_bpe("walked talks")
    assert pieces.startswith("\u2581") and len(pieces.split()) > 2
    assert speaks.remove_bpe(pieces) == "walked talks"
    (speaking / "codes").touch()
    with pytest.raises(UsageError, match=r"has codes, joint\.model; choose with pieces= \(--pieces\)"):
        load_translator(speaking)
    (speaking / "codes").unlink()


@pytest.mark.parametrize(
    ("words", "mark"),
    [(("\u2581wal", "k", "ed"), "\u2581"), (("wal@@", "k@@", "ed"), "@@"), (("\u2581", "w"), "\u2581")],
    ids=["sentencepiece", "subword-nmt", "characters"],
)
def test_pieces_without_a_subword_model_are_refused(folder, tmp_path, words, mark):
    copied = of_words(folder, tmp_path / "copied", dict.fromkeys(words, 9))
    with pytest.raises(UsageError, match=rf"dictionary has pieces of words \({mark}\).*pieces= \(--pieces\), or none"):
        load_translator(copied)
    assert load_translator(copied, pieces="none").translate(" ".join(words), **SIZES)


def test_a_mark_that_whole_words_have_by_chance(folder, tmp_path):
    assert load_translator(of_words(folder, tmp_path / "copied", {"\u2581": 1, "x@@": 1})).translate("w1 w2", **SIZES)


def test_words_are_not_read_as_pieces(folder, speaking, tmp_path):
    """Of a model that gets ready pieces, or of fairseq's from_pretrained, which looks for no subword model."""
    hub = MODEL_REGISTRY["luna"].from_pretrained(str(speaking), "checkpoint_last.pt")
    for model in (load_translator(speaking, pieces="none"), hub):
        assert model.translate("\u2581walk ed", **SIZES)
        for read in (model.translate, model.encode):
            with pytest.raises(UsageError, match=r"walked talks \.\.\.: has no pieces of SentencePiece"):
                read("walked talks")


def test_codes_of_subword_nmt_are_used(folder, tmp_path):
    pytest.importorskip("subword_nmt")
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\nw a\n")
    assert load_translator(folder, pieces=codes).apply_bpe("wab") == "wa@@ b"
    # Also where the training had others, which may be gone.
    state = torch.load(folder / "checkpoint_last.pt", weights_only=False)
    state["cfg"]["bpe"] = {"_name": "subword_nmt", "bpe_codes": str(tmp_path / "gone"), "bpe_separator": "@@"}
    torch.save(state, tmp_path / "model.pt")
    assert load_translator(tmp_path, data=folder, pieces=codes).apply_bpe("wab") == "wa@@ b"
    with pytest.raises(UsageError, match=r"gone.*; pieces= \(--pieces\) names the subword model"):
        load_translator(tmp_path, data=folder)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "{here}"}, "{here}: has none of checkpoint_best.pt, checkpoint_last.pt, model.pt"),
        ({"path": "{here}/x.pt"}, "{here}/x.pt: there is no such checkpoint"),
        ({"path": "{here}/prepared"}, "model.pt; give {here}/prepared/checkpoints"),
        ({"path": "{folder}", "data": "{here}"}, "{here}/dict.a.txt: No such file or directory; if the data has moved"),
        ({"path": "{folder}", "pieces": "{here}/x.model"}, "{here}/x.model: there is no such subword model"),
        (
            {"path": "{folder}", "pieces": "{here}/text.model"},
            "{here}/text.model: is not a subword model, or cannot be read",
        ),
        (
            {"path": "{here}/untold.pt", "data": "{folder}"},
            "the checkpoint does not record its languages; give source_lang=",
        ),
        ({"path": "{folder}", "projection_length": 9}, "checkpoint_last.pt does not fit the model"),
        ({"path": "{here}/nan.pt", "data": "{folder}"}, "{here}/nan.pt: there is NaN in decoder.layers.0.fc1.bias"),
    ],
    ids=["folder", "checkpoint", "prepared", "data", "no-pieces", "pieces", "languages", "overrides", "nan"],
)
def test_what_cannot_be_loaded_is_refused_in_one_line(folder, tmp_path, given, said):
    places = {"here": tmp_path, "folder": folder}
    (tmp_path / "text.model").write_text("no model")
    (tmp_path / "prepared" / "checkpoints").mkdir(parents=True)
    state = torch.load(folder / "checkpoint_last.pt", weights_only=True)
    state["model"]["decoder.layers.0.fc1.bias"][0] = math.nan
    torch.save(state, tmp_path / "nan.pt")
    state["cfg"]["task"]["source_lang"] = None
    torch.save(state, tmp_path / "untold.pt")
    with pytest.raises(UsageError) as refused:
        load_translator(
            **{name: value.format(**places) if isinstance(value, str) else value for name, value in given.items()}
        )
    assert said.format(**places) in str(refused.value)
    assert "\n" not in str(refused.value)


MANY = ("--task=translation_multi_simple_epoch", "--langs=a,b", "--lang-pairs=a-b,b-a", "--decoder-langtok")


@pytest.mark.parametrize("source_mark", [(), ("--encoder-langtok=tgt",)], ids=["target", "source"])
def test_a_model_of_several_languages_translates_as_fairseq_generate_does(
    tiny_data, tmp_path, capsys, caplog, source_mark
):
    data = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    for file in data.glob("train.a-b.*"):
        shutil.copy(file, data / file.name.replace("train", "test"))
    flags = ("--optimizer=adam", "--lr=0.01", "--max-epoch=4", "--disable-validation")
    flags = (*FAMILIES["luna"], *MANY, *source_mark, *flags)
    checkpoint = train(str(data), tmp_path, *[flag.replace("a-b,b-a", "a-b") for flag in flags])
    run(
        "generate",
        *(str(data), f"--user-dir={Path(command.__file__).parent}", f"--path={checkpoint}", "--cpu", *MANY),
        *(*source_mark, "-s=a", "-t=b", "--gen-subset=test", "--num-workers=0", "--beam=3", "--max-len-b=8"),
    )
    out = capsys.readouterr().out
    lines = {kind: dict(re.findall(rf"^{kind}-(\d+)\t(?:[-\d.]+\t)?(.*)$", out, flags=re.M)) for kind in "SH"}
    numbers = sorted(lines["H"], key=int)[:20]
    texts = [re.sub(r"__\w+__ ?", "", lines["S"][number]) for number in numbers]
    translator = load_translator(checkpoint, data=data, source_lang="a", target_lang="b")
    assert translator.translate(texts, **SIZES) == [lines["H"][number] for number in numbers]
    with pytest.raises(UsageError, match="prefix_allowed_tokens_fn: the model's task cannot restrict words"):
        translator.translate(TEXTS, prefix_allowed_tokens_fn=lambda sentence, words: [4], **SIZES)
    with pytest.raises(UsageError, match=r"give source_lang= and target_lang= \(--source-lang, --target-lang\)"):
        load_translator(checkpoint, data=data)
    for source, target, count in (("b", "a", 1), ("a", "b", 0)):
        caplog.clear()
        load_translator(checkpoint, data=data, source_lang=source, target_lang=target)
        assert sum(f"{source}-{target}: its training was of a-b" in said for said in caplog.messages) == count


def test_a_sentence_that_is_too_long_is_refused(folder):
    short = load_translator(folder, max_source_positions=4)
    with pytest.raises(UsageError, match="a sentence has 6 pieces, the model reads at most 4: w5 w6 w7 w8 w9"):
        short.translate(TEXTS)
    longer = load_translator(folder, max_source_positions=2000)
    assert longer.translate("w5 " * 1500, beam=1, max_len_b=3)
    of_short_batches = load_translator(folder, max_tokens=3)
    assert of_short_batches.translate(TEXTS, **SIZES) == load_translator(folder).translate(TEXTS, **SIZES)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam": 0}, "beam 0: must be a whole number of 1 or more"),
        ({"max_len_b": 0}, r"max_len_a 0.*, max_len_b 0: allow fewer pieces here than min_len 1 asks for"),
        ({"lenpen": 1e300}, r"max_len_a, lenpen: too large: .*out of range"),
        ({"max_len_a": 1e308}, "max_len_a, lenpen: too large: cannot convert float infinity"),
    ],
)
def test_sizes_of_the_search_that_cannot_be_are_refused(translator, options, said):
    with pytest.raises(UsageError, match=said):
        translator.translate(TEXTS, **options)

"""``fairseq_luna.load`` and ``python -m fairseq_luna translate``: a trained model translates text."""

import random
import re
import shutil
import sys
from pathlib import Path

import pytest
import sentencepiece
import torch
from commands import FAMILIES, run, train
from fairseq.models import MODEL_REGISTRY

import fairseq_luna
from fairseq_luna import __main__ as command
from fairseq_luna.export import DecoderStepForExport, EncoderForExport
from fairseq_luna.loading import load
from fairseq_luna.translate import as_text, translated
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


def test_sampling_follows_the_seed(translator):
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(translator.translate(TEXTS, sampling=True, **SIZES))
    assert drawn[0] == drawn[1] != drawn[2]


def test_alignments_can_be_asked_for_later(folder, translator):
    tokens = [translator.encode(text) for text in TEXTS]
    hub = MODEL_REGISTRY["luna"].from_pretrained(str(folder), "checkpoint_last.pt")
    from_the_start = load(folder, print_alignment="hard")
    expected = [best["alignment"] for best, *_ in from_the_start.generate(tokens, **SIZES)]
    assert all(expected)
    for model in (translator, hub):
        assert model.generate(tokens[0], **SIZES)[0]["attention"].numel() == 0
        assert [best["alignment"] for best, *_ in model.generate(tokens, print_alignment="hard", **SIZES)] == expected
        assert model.generate(tokens[0], **SIZES)[0]["attention"].numel() == 0


def test_it_exports(translator):
    source = translator.encode(TEXTS[0])[None]
    [model] = translator.models
    encoded = EncoderForExport(translator)(source)
    torch.testing.assert_close(encoded["encoder_out"], model.encoder(source, torch.tensor([4]))["encoder_out"][0])
    log_probs, _ = DecoderStepForExport(translator)(torch.tensor([[2]]), encoded, {})
    torch.testing.assert_close(log_probs.exp().sum(), torch.tensor(1.0))


def test_an_ensemble_is_loaded_and_not_exported_as_one(folder):
    both = load(f"{folder}/checkpoint_last.pt:{folder}/checkpoint_last.pt")
    assert both.translate(TEXTS, **SIZES) == load(folder).translate(TEXTS, **SIZES)
    with pytest.raises(UsageError, match=r"an ensemble of 2 models: export each of its \.models"):
        EncoderForExport(both)


def test_lines_keep_their_order_and_empty_ones_stay_empty(translator):
    lines = ["\n", TEXTS[2] + "\r\n", "  \n", *TEXTS[:2], ""]
    expected = dict(zip(TEXTS, translator.translate(TEXTS, **SIZES), strict=True))
    for size in (1, 2, 100):
        assert list(translated(translator, lines, size, **SIZES)) == [expected.get(line.strip(), "") for line in lines]


def test_a_line_that_cannot_be_translated_takes_no_others_with_it(translator):
    found, expected = [], translator.translate(TEXTS[:2], **SIZES)
    with pytest.raises(UsageError, match="a sentence has 2001 pieces"):
        found.extend(translated(translator, [*TEXTS[:2], "w1 " * 2000, TEXTS[0]], 100, **SIZES))
    assert found == expected
    with pytest.raises(UsageError, match=r"line 2: is not UTF-8 \(invalid start byte at byte 3\)"):
        found.extend(translated(translator, as_text([b"w4", b"w1\xff", b"w2"]), 100, **SIZES))
    assert found == [*expected, expected[1]]


def test_lines_are_translated_before_the_last_is_read(translator):
    def endless():
        yield from TEXTS
        raise AssertionError("read on")

    assert next(translated(translator, endless(), 2, **SIZES))


def test_the_command(folder, translator, tmp_path, capfd, monkeypatch):
    source = tmp_path / "source.txt"
    source.write_text(f"{TEXTS[0]}\n\n{TEXTS[1]}\n")
    with source.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "argv", ["fairseq_luna", "translate", str(folder), "--beam=3", "--max-len-b=8"])
        assert command.main() == 0
    first, second = translator.translate(TEXTS[:2], **SIZES)
    assert capfd.readouterr().out == f"{first}\n\n{second}\n"


def test_the_subword_model_beside_the_checkpoint_is_used(folder, tmp_path):
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    draw = random.Random(0)
    words = (" ".join(draw.choices(["walking", "talked", "walks", "talking"], k=5)) for _ in range(50))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=words, model_prefix=str(copied / "joint"), vocab_size=15, minloglevel=2
    )
    translator = load(copied)
    pieces = translator.apply_bpe("walked talks")
    assert pieces.startswith("\u2581") and len(pieces.split()) > 2
    assert translator.remove_bpe(pieces) == "walked talks"
    (copied / "codes").touch()
    with pytest.raises(UsageError, match=r"has codes, joint\.model; choose with pieces= \(--pieces\)"):
        load(copied)


def test_codes_of_subword_nmt_are_used(folder, tmp_path):
    pytest.importorskip("subword_nmt")
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\nw a\n")
    assert load(folder, pieces=codes).apply_bpe("wab") == "wa@@ b"
    # Also where the training had others, which may be gone.
    state = torch.load(folder / "checkpoint_last.pt", weights_only=False)
    state["cfg"]["bpe"] = {"_name": "subword_nmt", "bpe_codes": str(tmp_path / "gone"), "bpe_separator": "@@"}
    torch.save(state, tmp_path / "model.pt")
    assert load(tmp_path, data=folder, pieces=codes).apply_bpe("wab") == "wa@@ b"
    with pytest.raises(UsageError, match=r"gone.*; pieces= \(--pieces\) names the subword model"):
        load(tmp_path, data=folder)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "{here}"}, "{here}: has none of checkpoint_best.pt, checkpoint_last.pt, model.pt"),
        ({"path": "{here}/x.pt"}, "{here}/x.pt: there is no such checkpoint"),
        ({"path": "{folder}", "data": "{here}"}, "{here}/dict.a.txt: No such file or directory; data= (--data) names"),
        ({"path": "{folder}", "pieces": "{here}/x.model"}, "{here}/x.model: there is no such subword model"),
        (
            {"path": "{folder}", "pieces": "{here}/text.model"},
            "{here}/text.model: is no subword model, or cannot be read",
        ),
        ({"path": "{folder}", "source_lang": None}, "the training was not told its languages; give source_lang="),
        ({"path": "{folder}", "projection_length": 9}, "checkpoint_last.pt does not fit the model"),
    ],
    ids=["folder", "checkpoint", "data", "no-pieces", "pieces", "languages", "overrides"],
)
def test_what_cannot_be_loaded_is_refused_in_one_line(folder, tmp_path, given, said):
    places = {"here": tmp_path, "folder": folder}
    (tmp_path / "text.model").write_text("no model")
    with pytest.raises(UsageError) as refused:
        load(**{name: value.format(**places) if isinstance(value, str) else value for name, value in given.items()})
    assert said.format(**places) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_sentence_that_is_too_long_is_refused(folder):
    short = load(folder, max_source_positions=4)
    with pytest.raises(UsageError, match="a sentence has 6 pieces, the model reads at most 4: w5 w6 w7 w8 w9"):
        short.translate(TEXTS)
    longer = load(folder, max_source_positions=2000)
    assert longer.translate("w5 " * 1500, beam=1, max_len_b=3)
    of_short_batches = load(folder, max_tokens=3)
    assert of_short_batches.translate(TEXTS, **SIZES) == load(folder).translate(TEXTS, **SIZES)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"beam": 0}, "beam 0: must be 1 or more"), ({"max_len_b": 0}, "max_len_a, max_len_b: min_len cannot be larger")],
)
def test_sizes_of_the_search_that_cannot_be_are_refused(translator, options, said):
    with pytest.raises(UsageError, match=said):
        translator.translate(TEXTS, **options)

"""The options of ``load`` and ``translate``: those that exist work, and others are refused by name."""

import copy
import inspect
import pickle
import shutil
from pathlib import Path

import pytest
import torch

import fairseq_luna
from commands import FAMILIES, TRANSFORMER, train
from fairseq_luna import loading
from fairseq_luna.deployed import Translation
from fairseq_luna.line_translation import translate_lines
from fairseq_luna.models.shared.alignments import with_replacements, word_pairs, words_of_pieces
from fairseq_luna.models.shared.translator import TorchTranslator
from fairseq_luna.usage_error import UsageError

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9"]
SIZES = {"max_len_b": 8, "beam": 3}
TRAINING = ("--optimizer=adam", "--lr=0.01", "--max-epoch=4", "--disable-validation", "-s=a", "-t=b")


@pytest.fixture(scope="module")
def folder(tiny_data, tmp_path_factory):
    """A folder with a trained Luna and its dictionaries."""
    made = tmp_path_factory.mktemp("model")
    train(tiny_data, made, *FAMILIES["luna"], *TRAINING)
    for language in "ab":
        shutil.copy(Path(tiny_data) / f"dict.{language}.txt", made)
    return made


@pytest.fixture(scope="module")
def translator(folder):
    return fairseq_luna.load(folder)


UNKNOWN = {
    "bem": "did you mean beam",
    "lpenen": "did you mean lenpen",
    "print_alignment": "give alignments=True",
    "retain_dropout": "it is an option of load",
    "device": "it is an option of load",
    "lm_path": "only fairseq-generate reads a language model",
    "xyzzy": "the options are alignments, batch_size, beam",
}


@pytest.mark.parametrize(("name", "said"), UNKNOWN.items(), ids=UNKNOWN)
def test_an_option_that_translate_does_not_have_is_a_type_error(translator, name, said):
    for call in (translator.translate, translator.sample):
        with pytest.raises(TypeError, match=f"has no option {name}[:;] {said}"):
            call(TEXTS, **{name: 5})


@pytest.mark.parametrize(
    ("name", "said"), [("bem", "beam"), ("nbset", "nbest"), ("replace_unk", "translate"), ("prefix_size", "prefix_tok")]
)
def test_an_option_that_generate_does_not_have_is_a_type_error(translator, name, said):
    with pytest.raises(TypeError, match=rf"generate\(\) has no option {name}.*{said}"):
        translator.generate([translator.encode("w1")], **{name: 1})


@pytest.mark.parametrize(
    ("name", "said"),
    [("devcie", "device"), ("souce_lang", "source_lang"), ("nbest", "translate"), ("encoder_layer", "encoder_layers")],
)
def test_an_option_that_load_does_not_have_is_a_type_error(folder, name, said):
    with pytest.raises(TypeError, match=rf"load\(\) has no option {name}.*{said}"):
        fairseq_luna.load(folder, **{name: "2"})


def test_signatures_and_documentation_have_every_option():
    public, inner = (
        inspect.signature(function).parameters for function in (fairseq_luna.load, loading.load_translator)
    )
    assert [(each.name, each.default) for each in public.values() if each.name != "engine"] == [
        (each.name, each.default) for each in inner.values()
    ]
    for function in (fairseq_luna.load, TorchTranslator.translate):
        names = [name for name in inspect.signature(function).parameters if name != "self"]
        assert len(names) > 10 and all(
            f"{name}:" in function.__doc__ or f"{name}," in function.__doc__ for name in names
        )


def test_n_best_lists_and_scores_are_those_of_the_search(translator):
    hypotheses = translator.generate([translator.encode(text) for text in TEXTS], **SIZES)
    expected = [[translator.decode(each["tokens"]) for each in some] for some in hypotheses]
    assert translator.translate(TEXTS, nbest=2, **SIZES) == [some[:2] for some in expected]
    assert translator.translate(TEXTS[0], nbest=1, **SIZES) == expected[0][:1]
    scored = translator.translate(TEXTS, scores=True, **SIZES)
    assert [each.text for each in scored] == [some[0] for some in expected]
    assert [each.score for each in scored] == pytest.approx([float(some[0]["score"]) for some in hypotheses], abs=1e-5)
    assert translator.translate("", scores=True, **SIZES) == Translation("", 0.0, None)
    cut = translator.generate([translator.encode(TEXTS[0])], nbest=2, **SIZES)
    assert [len(some) for some in cut] == [2]


def test_any_iterable_of_texts_is_translated_and_nothing_else(translator):
    expected = translator.translate(TEXTS, **SIZES)
    assert translator.translate((text for text in TEXTS), **SIZES) == expected
    assert translator.translate(dict.fromkeys(TEXTS), **SIZES) == expected
    for wrong in (5, None, b"w1", [b"w1"], [TEXTS], [1.5]):
        with pytest.raises(TypeError, match="sentences: must be a text or several, of type str"):
            translator.translate(wrong, **SIZES)


def test_sizes_of_batches_are_taken_and_change_no_translation(translator, monkeypatch):
    expected, sizes = translator.translate(TEXTS * 3, **SIZES), []
    step = translator.task.inference_step

    def counted(generator, models, sample, *args, **options):
        sizes.append(tuple(sample["net_input"]["src_tokens"].shape))
        return step(generator, models, sample, *args, **options)

    monkeypatch.setattr(translator.task, "inference_step", counted)
    for options, most in (
        ({"batch_size": 2}, lambda rows, _: rows),
        ({"max_tokens": 12}, lambda rows, long: rows * long),
    ):
        sizes.clear()
        assert translator.translate(TEXTS * 3, **options, **SIZES) == expected
        assert len(sizes) > 1 and max(most(*size) for size in sizes) <= next(iter(options.values()))
    sizes.clear()
    translator.translate(TEXTS * 3, **SIZES)
    assert [rows for rows, _ in sizes] == [8, 1]  # the training's --batch-size


def test_what_load_is_given_holds_in_translating(folder, translator):
    short = fairseq_luna.load(folder, beam=2, max_len_b=3, batch_size=1, device=torch.device("cpu"))
    assert (short.cfg.dataset.max_tokens, short.cfg.dataset.batch_size) == (None, 1)
    assert short.translate(TEXTS) == translator.translate(TEXTS, beam=2, max_len_b=3)
    halves = fairseq_luna.load(folder, bf16=True)
    assert {parameter.dtype for parameter in halves.models.parameters()} == {torch.bfloat16}
    assert len(halves.translate(TEXTS, **SIZES)) == len(TEXTS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "nonsense"}, r"device nonsense \(--device\)"),
        ({"fp16": True}, r"fp16 \(--fp16\): is for GPUs; give bf16"),
        ({"fp16": True, "bf16": True}, "give one of them"),
        ({"batch_size": 0}, "batch_size 0: must be a whole number"),
        ({"lenpen": float("nan")}, "lenpen nan: must be a finite number"),
        ({"source_lang": "b", "target_lang": "a"}, "--source-lang b, --target-lang a: its training was from a to b"),
        ({"target_lang": "a"}, "--target-lang a: its training was from a to b"),
    ],
)
def test_what_cannot_be_is_refused_in_loading(folder, options, said):
    with pytest.raises(UsageError, match=said):
        fairseq_luna.load(folder, **options)


def test_the_languages_of_the_training_may_be_given(folder, translator):
    assert fairseq_luna.load(folder, source_lang="a", target_lang="b").translate(
        TEXTS, **SIZES
    ) == translator.translate(TEXTS, **SIZES)


def test_an_ensemble_of_both_directions_is_refused(folder, tmp_path):
    state = torch.load(folder / "checkpoint_last.pt", weights_only=True)
    state["cfg"]["task"].update(source_lang="b", target_lang="a")
    torch.save(state, tmp_path / "reversed.pt")
    with pytest.raises(
        UsageError, match=r"reversed\.pt: was trained from b to a, and the ensemble's first from a to b"
    ):
        fairseq_luna.load(f"{folder}:{tmp_path / 'reversed.pt'}", data=folder)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nbest": 4, "beam": 3}, "nbest 4: must be at most beam 3"),
        ({"sampling_topk": 3}, "sampling_topk 3: has an effect only with sampling"),
        ({"sampling": True, "sampling_topk": 10**6}, "must be at most 24, the tokens"),
        ({"sampling": True, "sampling_topp": 1.5}, "must be above 0 and at most 1"),
        ({"sampling": True, "sampling_topk": 2, "sampling_topp": 0.5}, "give one of them"),
        ({"sampling": True, "match_source_len": True}, "are different searches"),
        ({"sampling": True, "prefix_allowed_tokens_fn": lambda *_: [4]}, "are different searches"),
        ({"diverse_beam_groups": 2, "beam": 3}, "must divide beam 3"),
        ({"no_repeat_ngram_size": 2.5}, "must be a whole number"),
        ({"replace_unk": "no-such-file"}, "replace_unk no-such-file: No such file"),
    ],
)
def test_options_that_do_not_go_together_are_refused(translator, options, said):
    with pytest.raises(UsageError, match=said):
        translator.translate(TEXTS, **options)


def test_sampling_draws_what_the_seed_says(translator):
    def drawn(seed, **options):
        torch.manual_seed(seed)
        return translator.translate(TEXTS, sampling=True, max_len_b=8, **options)

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1
    assert drawn(1, sampling_topk=1) == drawn(2, sampling_topk=1)


@pytest.mark.parametrize(
    ("pieces", "mark", "expected"),
    [
        (["▁The", "▁old", "er", "▁", "t", "."], "▁", [0, 1, 1, 2, 2, 2]),
        (["The", "▁o", "▁▁", "ld"], "▁", [0, 1, 2, 2]),
        (["a@@", "b", "c", "d@@", "e@@", "f"], "@@", [0, 0, 1, 2, 2, 2]),
        (["a@@", "▁b"], None, [0, 1]),
    ],
)
def test_words_of_pieces(pieces, mark, expected):
    assert words_of_pieces(pieces, mark) == expected


def test_pairs_of_pieces_become_pairs_of_words_each_once():
    assert word_pairs([(2, 0), (0, 1), (1, 1), (1, 2)], [0, 0, 1], [0, 1, 1]) == [(1, 0), (0, 1)]


def test_unknown_words_are_replaced_by_those_that_are_aligned():
    given = (["a", "<unk>", "<unk>", "<unk>"], ["x", "y"], [(1, 1), (0, 2)])
    assert with_replacements(*given, {"x": "z"}, "<unk>") == ["a", "y", "z", "<unk>"]


@pytest.mark.parametrize("model", ["luna", "transformer"])
def test_alignments_are_those_of_the_hypotheses(tiny_data, folder, tmp_path, model):
    if model == "transformer":
        train(tiny_data, tmp_path, *TRANSFORMER, "--max-update=5", *TRAINING[3:])
    loaded = fairseq_luna.load(folder if model == "luna" else tmp_path, data=tiny_data)
    tokens = [loaded.encode(text) for text in TEXTS]
    expected = [best["alignment"] for best, *_ in loaded.generate(tokens, print_alignment="hard", **SIZES)]
    found = loaded.translate(TEXTS, alignments=True, **SIZES)
    assert [set(each.alignment) for each in found] == [set(pairs) for pairs in expected] and any(expected)


def test_an_unknown_word_of_the_source_is_copied(translator, monkeypatch, tmp_path):
    """With a model whose every word is unknown."""
    unknown = translator.tgt_dict.unk()
    allowed = {"prefix_allowed_tokens_fn": lambda sentence, words: [unknown, translator.tgt_dict.eos()]}
    options = {**allowed, "min_len": 3, **SIZES}
    assert set(translator.translate("one two", **options).split()) == {"<unk>"}
    assert set(translator.translate("one two", replace_unk=True, **options).split()) <= {"one", "two"}
    (tmp_path / "words").write_text("one eins\ntwo zwei\n", encoding="utf-8")
    found = translator.translate("one two", replace_unk=str(tmp_path / "words"), **options)
    assert set(found.split()) <= {"eins", "zwei"}


def test_lines_of_the_output_are_as_many_for_every_text(translator):
    options = {"nbest": 2, "scores": True, "alignments": True, **SIZES}
    lines = list(translate_lines(translator, ["w1 w2", "", "w3"], 10, **options))
    assert len(lines) == 6 and all(line.count("\t") == 2 for line in lines)
    assert lines[2:4] == ["0.0000\t\t", "-inf\t\t"]
    [best, _] = translator.translate("w1 w2", **options)
    pairs = " ".join(f"{ours}-{theirs}" for ours, theirs in best.alignment)
    assert lines[0] == f"{best.score:.4f}\t{best.text}\t{pairs}"
    assert list(translate_lines(translator, ["w1 w2"], 1, **SIZES)) == [best.text]


def test_a_loaded_model_says_why_it_cannot_be_pickled_or_copied(translator):
    for copied in (pickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(TypeError, match=r"let each process call fairseq_luna\.load"):
            copied(translator)


def test_a_deployed_model_names_what_it_cannot_do():
    pytest.importorskip("onnxruntime")
    from fairseq_luna.deployed import Translator

    advice = {"bem": "did you mean beam", "sampling": "exported models do not support it", "fp16": "on a CPU"}
    for name, said in advice.items():
        for call in (Translator.translate, Translator.translations):
            with pytest.raises(TypeError, match=rf"has no option {name}.*{said}"):
                call(None, "w1", **{name: 1})
    names = [name for name in inspect.signature(Translator.translate).parameters if name != "self"]
    assert {"beam", "nbest", "scores", "batch_size", "max_tokens", "lenpen", "min_len"} < set(names)

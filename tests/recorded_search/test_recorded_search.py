"""The search of fixed shapes returns the hypotheses, order and scores of fairseq's SequenceGenerator."""

from itertools import chain
from typing import Any

import pytest
import torch
from fairseq.search import BeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment

import operator_tape
from fairseq_luna.models.mixed.chosen_attentions import available_in
from fairseq_luna.modules.decoding_state import flatten_state
from fairseq_luna.recorded_search import (
    RecordedSearch,
    recorded_search,
    search_state,
    sequence_generator,
    unsupported_option,
)
from support import PAD, build_model, sentences, translation_task

WORDS = 60
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "length-penalty": {"len_penalty": 0.6, "beam_size": 4},
    "greedy": {"beam_size": 1},
    "minimum": {"min_len": 7, "beam_size": 3},
    "relative-limit": {"max_len_a": 1.2, "max_len_b": 3},
    "short": {"max_len_b": 6},
    "no-unknown": {"unk_penalty": 2.5, "temperature": 1.7},
    "unknown": {"unk_penalty": -2.5, "beam_size": 8},
    "sums": {"normalize_scores": False, "temperature": 0.5},
    "fixed-length": {"min_len": 9, "max_len_b": 9},
    "one-token": {"max_len_b": 1},
    "wide": {"beam_size": 25, "max_len_b": 12},
}
# Sentences of one batch end at different times; sources are padded, or alone.
SOURCES = [(9, 7, 7, 3, 2, 1), (12,), (20, 20, 20)]
FAMILIES = {"luna": {}, "luna-softmax-source": {"luna_source_attention": "softmax"}, "fastformer": {}, "block": {}}


def model_of(name: str) -> Any:
    """A model of a family, or of ``mixed`` with this attention in the decoder, whose outputs are not uniform."""
    if name in FAMILIES:
        model = build_model(name.partition("-")[0], words=WORDS, **FAMILIES[name])
    else:
        model = build_model("mixed", words=WORDS, decoder_self_attention=name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.8)
    model.eval()
    model.decoder.generates = True
    return model


def batches() -> list[dict[str, Any]]:
    found = []
    for seed, lengths in enumerate(SOURCES):
        tokens = sentences(*lengths, words=WORDS, seed=seed, left=True)
        found.append({"net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)}})
    return found


def generator_of(model: Any, **options: Any) -> SequenceGenerator:
    dictionary = translation_task(WORDS).target_dictionary
    return SequenceGenerator([model], dictionary, **{"beam_size": 5, "max_len_b": 40, **options})


def assert_same(found: Any, expected: Any) -> None:
    """The same hypotheses in the same order, with the same scores but for rounding."""
    for ours, theirs in zip(found, expected, strict=True):
        assert [x["tokens"].tolist() for x in ours] == [x["tokens"].tolist() for x in theirs]
        for one, other in zip(ours, theirs, strict=True):
            for name in ("score", "positional_scores"):
                torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_hypotheses_are_those_of_fairseq(options):
    model = model_of("luna")
    generator = generator_of(model, **options)
    assert unsupported_option(generator) is None
    search = RecordedSearch(generator)
    for batch in batches():
        assert_same(search.generate(batch), generator.generate([model], batch))


@pytest.mark.parametrize("name", [*FAMILIES, *available_in("decoder")])
def test_every_decoder_finds_the_hypotheses_of_fairseq(name):
    model = model_of(name)
    generator = generator_of(model, max_len_b=24, beam_size=4)
    search = RecordedSearch(generator)
    for batch in batches():
        assert_same(search.generate(batch), generator.generate([model], batch))


@pytest.mark.parametrize("name", [*FAMILIES, *available_in("decoder")])
def test_a_replayed_token_is_the_same_function(name, monkeypatch):
    """The operators of one token, repeated on the same memory without Python, as a CUDA graph repeats them."""
    monkeypatch.setattr(recorded_search, "FIRST_ROOM", 8)  # is doubled twice
    model = model_of(name)
    generator = generator_of(model, max_len_b=24, beam_size=4)
    search = RecordedSearch(generator, record=operator_tape.record, tokens_between_syncs=3)
    for batch in batches():
        assert_same(search.generate(batch), generator.generate([model], batch))
    recorded = list(search.recorded)
    for batch in reversed(batches()):
        assert_same(search.generate(batch), generator.generate([model], batch))
    assert list(search.recorded) and set(search.recorded) <= set(recorded)  # batches of the same shapes share a token


@pytest.mark.parametrize("record", [None, operator_tape.record], ids=["eager", "replayed"])
@pytest.mark.parametrize(
    ("name", "flags"),
    [("luna", {}), ("block", {"alignment_layer": 0, "alignment_heads": 2}), ("softmax", {})],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_alignments_are_those_of_fairseq(name, flags, record, monkeypatch):
    monkeypatch.setattr(sequence_generator, "search_recorder", lambda device: record)
    dictionary = translation_task(WORDS).target_dictionary
    found, used = {}, searches_of(monkeypatch)
    for search in ("fairseq", "recorded"):
        model = model_of(name)
        for flag, value in flags.items():
            setattr(model.decoder.cfg, flag, value)
        model.cfg.search = search
        model.make_generation_fast_(beamable_mm_beam_size=None, need_attn="hard")
        generator = SequenceGeneratorWithAlignment([model], dictionary, beam_size=4, max_len_b=24, min_len=2)
        # The second time, as the first batch on a GPU is decoded by fairseq's search too.
        found[search] = [generator.generate([model], batch) for batch in 2 * batches()][len(batches()) :]
        assert used[-1] == search
    for ours, theirs in zip(found["recorded"], found["fairseq"], strict=True):
        assert_same(ours, theirs)
        for one, other in zip(chain(*ours), chain(*theirs), strict=True):
            torch.testing.assert_close(one["attention"], other["attention"], rtol=1e-4, atol=1e-5)
            assert one["alignment"] == other["alignment"]
    assert any(hypothesis["alignment"] for hypothesis in chain(*chain(*found["recorded"])))


def searches_of(monkeypatch) -> list[str]:
    """A list to which each batch adds the search that decodes it."""
    used: list[str] = []
    recorded, by_fairseq = RecordedSearch.generate, BeamSearch.step

    def generate(self, *args, **kwargs):
        used.append("recorded")
        return recorded(self, *args, **kwargs)

    def step(self, number, *args, **kwargs):
        if number == 0:
            used.append("fairseq")
        return by_fairseq(self, number, *args, **kwargs)

    monkeypatch.setattr(RecordedSearch, "generate", generate)
    monkeypatch.setattr(BeamSearch, "step", step)
    return used


def test_the_config_decides_which_search_decodes(monkeypatch):
    used, [batch, *_] = searches_of(monkeypatch), batches()
    for search in ("fairseq", "recorded"):
        model = build_model("luna", words=WORDS, search=search).eval()
        generator_of(model).generate([model], batch)
    assert used == ["fairseq", "recorded"]


UNSUPPORTED = {
    "ngrams": ({"no_repeat_ngram_size": 2}, {}, "--no-repeat-ngram-size"),
    "source-length": ({"match_source_len": True}, {}, "--match-source-len"),
    "prefix": ({}, {"prefix_tokens": torch.full((6, 1), 7)}, "--prefix-size"),
    "vocabulary": ({"beam_size": 40}, {}, "--beam 40"),
}


@pytest.mark.parametrize(("options", "inputs", "named"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_options_that_only_fairseq_has_are_named_and_left_to_it(options, inputs, named, monkeypatch, caplog):
    caplog.set_level("WARNING")
    used, [batch, *_] = searches_of(monkeypatch), batches()
    recorded, plain = (build_model("luna", words=WORDS, search=search).eval() for search in ("recorded", "fairseq"))
    found = generator_of(recorded, **options).generate([recorded], batch, **inputs)
    assert_same(found, generator_of(plain, **options).generate([plain], batch, **inputs))
    assert used == ["fairseq", "fairseq"]
    assert [record.message for record in caplog.records if named in record.message]


def test_an_ensemble_and_sampling_are_left_to_fairseq(monkeypatch):
    used, [batch, *_] = searches_of(monkeypatch), batches()
    models = [build_model("luna", words=WORDS, seed=seed, search="recorded").eval() for seed in (1, 2)]
    dictionary = translation_task(WORDS).target_dictionary
    SequenceGenerator(models, dictionary, beam_size=3).generate(models, batch)
    sampling = Sampling(dictionary, sampling_topk=5)
    SequenceGenerator(models[:1], dictionary, beam_size=3, search_strategy=sampling).generate(models[:1], batch)
    assert used == ["fairseq"]  # Sampling has a step of its own


@pytest.fixture
def recording(monkeypatch):
    """Sets how a token is recorded, as on a GPU; returns a generator for a model that asks for the recorded search."""

    def with_record(record):
        monkeypatch.setattr(sequence_generator, "search_recorder", lambda device: record)
        model = model_of("luna")
        model.cfg.search = "recorded"
        return model, generator_of(model, max_len_b=12)

    return with_record


def expected_hypotheses(batch):
    model = model_of("luna")
    return generator_of(model, max_len_b=12).generate([model], batch)


def test_the_first_batch_is_decoded_by_both_searches_later_ones_by_the_recorded(recording, monkeypatch, caplog):
    expected = [expected_hypotheses(batch) for batch in batches()]
    used = searches_of(monkeypatch)
    model, generator = recording(operator_tape.record)
    for batch, hypotheses in zip(batches(), expected, strict=True):
        assert_same(generator.generate([model], batch), hypotheses)
    assert used == ["fairseq", "recorded", "recorded", "recorded"]
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def cannot_record(function, reset):
    raise RuntimeError("operation not permitted when stream is capturing")


def records_something_else(function, reset):
    reset()
    return lambda: None


@pytest.mark.parametrize(
    ("record", "named"), [(cannot_record, "not permitted"), (records_something_else, "hypotheses differ")]
)
def test_what_cannot_be_recorded_is_left_to_fairseq_with_one_warning(record, named, recording, caplog):
    model, generator = recording(record)
    for batch in batches():
        assert_same(generator.generate([model], batch), expected_hypotheses(batch))
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert named in warning.message


@pytest.mark.slow
def test_ten_thousand_tokens_with_a_constant_state(monkeypatch):
    sizes = set()
    advance = search_state.SearchState.advance

    def counting(self):
        sizes.add(sum(tensor.numel() for tensor in flatten_state(self.state).values()))
        advance(self)

    monkeypatch.setattr(search_state.SearchState, "advance", counting)
    layers = {"encoder_layers": 1, "decoder_layers": 1, "max_target_positions": 10_010}
    model = build_model("mixed", words=WORDS, decoder_self_attention="ssru", **layers).eval()
    generator = generator_of(model, beam_size=2, min_len=10_000, max_len_b=10_000)
    [[best, *_]] = RecordedSearch(generator).generate(batches()[1])
    assert len(best["tokens"]) == 10_001
    assert len(sizes) == 1

"""The search of fixed shapes returns the hypotheses, order and scores of fairseq's SequenceGenerator."""

from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

import operator_tape
from fairseq_luna.models.mixed.attentions import able
from fairseq_luna.search import RecordedSearch, unsupported_option
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


@pytest.mark.parametrize("name", [*FAMILIES, *able("decoder")])
def test_every_decoder_finds_the_hypotheses_of_fairseq(name):
    model = model_of(name)
    generator = generator_of(model, max_len_b=24, beam_size=4)
    search = RecordedSearch(generator)
    for batch in batches():
        assert_same(search.generate(batch), generator.generate([model], batch))


@pytest.mark.parametrize("name", ["luna", "luna-softmax-source", "fastformer", "linear", "ssru"])
def test_a_replayed_token_is_the_same_function(name):
    """The operators of one token, repeated on the same memory without Python, as a CUDA graph repeats them."""
    model = model_of(name)
    generator = generator_of(model, max_len_b=24, beam_size=4)
    search = RecordedSearch(generator, record=operator_tape.record, tokens_between_looks=3)
    for batch in [*batches(), *batches()]:
        assert_same(search.generate(batch), generator.generate([model], batch))
    assert search.recorded

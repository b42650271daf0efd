"""A compiled layer or model is a bounded number of graphs for batches of all sizes: torch gives up after a number.

``make test`` traces one layer of most attentions over four batches, ``pytest -m inductor`` every model over thirty:
Python traces each graph in about a second. ``--junitxml graphs.xml`` records the number of graphs of each.
"""

import random

import pytest
import torch

import readers
from fairseq_luna.models.shared import compiled_layers
from support import PAD, as_prefix, build_model, sentences
from variants import VARIANTS

# What --compile-layers refuses cannot be compiled, or has weights that change within a step.
COMPILED = {
    name: flags for name, flags in VARIANTS.items() if not {"checkpoint_activations", "quant_noise_pq"} & flags.keys()
}
TEXT_ENCODERS = [name for name, flags in readers.EVERY_READER.items() if "checkpoint_activations" not in flags]
# Without those that take a minute to trace, and without another model of softmax: pytest -m inductor runs them.
LEFT_OUT = ("mixed-bp", "mixed-ssru", "mixed-convolution-prenorm")
ATTENTIONS = ["luna-tied", *(name for name in COMPILED if name.startswith("mixed-") and name not in LEFT_OUT)]
# One for the encoder and one for the decoder, and more for long sentences and for layers that differ. torch allows as
# many graphs of one function unless it is told otherwise.
MOST = 8

# The setting has two names, in older and newer versions of torch.
FAILS_AT_THE_LIMIT = {
    name: True
    for name in ("fail_on_cache_limit_hit", "fail_on_recompile_limit_hit")
    if name in torch._dynamo.config.get_config_copy()
}


def lengths(draw, padded, sentences):
    longest = draw.randint(5, draw.choice((12, 40, 140)))
    return [longest] + [draw.randint(3, longest - 1) if padded else longest for _ in range(sentences - 1)]


def batches(count):
    """Pairs of the lengths of sources and of targets: each side with padding and without."""
    draw = random.Random(5)
    for number in range(count):
        size = draw.randint(2, 6)
        yield lengths(draw, number % 2, size), lengths(draw, number // 2 % 2, size)


def logits(model, source_lengths, target_lengths):
    source, target = sentences(*source_lengths), sentences(*target_lengths, seed=2)
    torch.manual_seed(3)
    return model(source, source.ne(PAD).sum(1), as_prefix(target))[0][target.ne(PAD)]


def graphs_of_layers(flags, monkeypatch, *, count=30):
    """How many graphs the layers of a model that trains with --compile-layers are."""
    compiled = []

    def keep(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(compiled_layers, "BACKEND", keep)
    model, eager = build_model(**flags, compile_layers=True).train(), build_model(**flags).train()
    with torch._dynamo.config.patch(FAILS_AT_THE_LIMIT):
        for source_lengths, target_lengths in batches(count):
            found, expected = (logits(each, source_lengths, target_lengths) for each in (model, eager))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        found.square().mean().backward()
    return len(compiled)


@pytest.mark.inductor
@pytest.mark.parametrize("name", COMPILED)
def test_graphs_over_30_batches(name, monkeypatch, record_property):
    graphs = graphs_of_layers(COMPILED[name], monkeypatch)
    record_property("graphs", graphs)
    assert 2 <= graphs <= MOST


@pytest.mark.slow
def test_graphs_of_layers(monkeypatch):
    assert 2 <= graphs_of_layers(COMPILED["mixed-linear"], monkeypatch, count=8) <= MOST


def graphs_of_a_model(flags, *, training, count=30):
    """How many graphs a model is under torch.compile; nothing in it may end one."""
    compiled = []

    def keep(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = build_model(**flags).train(training)
    function = torch.compile(model, backend=keep, fullgraph=True)
    with torch._dynamo.config.patch(FAILS_AT_THE_LIMIT):
        for source_lengths, target_lengths in batches(count):
            found, expected = (logits(each, source_lengths, target_lengths) for each in (function, model))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    return len(compiled)


@pytest.mark.inductor
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", COMPILED)
def test_graphs_of_a_whole_model(name, training, record_property):
    """The first is for one size of batches, the second for any; others are for ranges of lengths."""
    graphs = graphs_of_a_model(COMPILED[name], training=training)
    record_property("graphs", graphs)
    assert 2 <= graphs <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTIONS)
def test_graphs_of_each_attention(name):
    """One graph of the first size, and one or two of any other."""
    one_layer = {**COMPILED[name], "encoder_layers": 1, "decoder_layers": 1}
    assert 2 <= graphs_of_a_model(one_layer, training=True, count=4) <= 3


@pytest.mark.slow
def test_graphs_of_luna():
    assert 2 <= graphs_of_a_model(COMPILED["luna-tied"], training=True, count=8) <= MOST


@pytest.mark.inductor
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_graphs_of_a_text_encoder(name, training, record_property):
    compiled = []

    def keep(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = readers.build(name, max_positions=200).train(training)
    function = torch.compile(readers.classify, backend=keep, fullgraph=True)
    with torch._dynamo.config.patch(FAILS_AT_THE_LIMIT):
        for lengths, _ in batches(30):
            found = []
            for classify in (function, readers.classify):
                torch.manual_seed(3)
                found.append(classify(model, sentences(*lengths)))
            torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    record_property("graphs", len(compiled))
    assert 2 <= len(compiled) <= MOST


def graphs_of_a_decoder(flags, *, tokens=12):
    """How many graphs the first steps of a decoder are, whose state may grow."""
    compiled = []

    def keep(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = build_model(**flags).eval()
    source, prefix = sentences(7, 4), as_prefix(sentences(tokens, tokens, seed=2))
    step = torch.compile(model.decoder.step, backend=keep)
    with torch.no_grad(), torch._dynamo.config.patch(FAILS_AT_THE_LIMIT):
        encoder_out = model.encoder(source, source.ne(PAD).sum(1))
        read = model.decoder.read_source(encoder_out)
        state = expected_state = model.decoder.initial_state(read, encoder_out)
        for position in range(tokens):
            inputs = prefix[:, position], torch.tensor([position]), read
            found, state = step(*inputs, state)
            expected, expected_state = model.decoder.step(*inputs, expected_state)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    return len(compiled)


@pytest.mark.inductor
@pytest.mark.parametrize("name", COMPILED)
def test_graphs_of_generation(name, record_property):
    """Of the first step, which makes the state, of the second, and of all others; block attention has more at the ends
    of its blocks."""
    graphs = graphs_of_a_decoder(COMPILED[name])
    record_property("graphs", graphs)
    assert graphs <= (8 if "block" in name else 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["luna-tied", "mixed-softmax"])
def test_graphs_of_generation_of_some(name, record_property):
    test_graphs_of_generation(name, record_property)

"""Exported graphs equal the models: encoders, and a decoder step with its state."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.export import Dim, export

import fairseq_luna
from fairseq_luna.exporting.decoder_step import DecoderStepForExport, EncoderForExport
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, fields_for
from support import PAD, as_prefix, build_model, sentences, step_by_step

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
pytestmark = pytest.mark.skipif(TORCH < (2, 7), reason="torch.export of torch 2.6 takes one size of batch alone")

# Ranges of source lengths of one graph, an example in it, and other batches.
FROM_TWO, EXAMPLE = {"min": 2, "max": 1000}, (9, 4, 5)
SOURCES = {
    "luna": ({"family": "luna"}, FROM_TWO, [(2, 2), (6, 2), (23, 7, 1, 11), (300, 7)]),
    "luna-prenorm": (
        {"family": "luna", "encoder_normalize_before": True, "layernorm_embedding": True},
        *(FROM_TWO, [(12, 12)]),
    ),
    "luna-convolution": ({"family": "luna", "attention_kernel_size": 5}, FROM_TWO, [(300, 7, 1, 11)]),
    # As fairseq-luna prepare recommends it, with more slots than the example has tokens.
    "luna-recommended": (
        {
            "family": "luna",
            "untie_luna_kv": True,
            "luna_source_attention": "softmax",
            "attention_kernel_size": 5,
            "encoder_normalize_before": True,
            "encoder_embed_dim": 128,
            "projection_length": 16,
        },
        *(FROM_TWO, [(2, 2), (23, 7, 1, 11), (300, 7)]),
    ),
    "fastformer": ({"family": "fastformer"}, FROM_TWO, [(2, 2), (600, 7, 1, 11)]),
    "fastformer-convolution": (
        {"family": "fastformer", "attention_kernel_size": 5},
        FROM_TWO,
        [(2, 2), (300, 7, 1, 11)],
    ),
}
WITH_A_STATE = {
    "luna-softmax-source": {"family": "luna", "luna_source_attention": "softmax", "decoder_layers": 2},
    "luna-convolution": {"family": "luna", "attention_kernel_size": 5, "luna_segment_bias": 4.0},
    "luna-learned-positions": {"family": "luna", "encoder_learned_pos": True, "decoder_learned_pos": True},
    "fastformer-convolution": {"family": "fastformer", "attention_kernel_size": 5},
    "block": {"family": "block", "decoder_block_size": 3},
    "block-unordered": {"family": "block", "decoder_block_size": 3, "unordered_blocks": "mean"},
}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
STEPS = 7


def small(family, **flags):
    return build_model(family, **{"encoder_layers": 1, "decoder_layers": 1, **flags}).eval()


def open_axes(tensors):
    """All axes of all tensors dynamic, where the graph allows it."""
    return {name: dict.fromkeys(range(tensor.dim()), Dim.AUTO) for name, tensor in tensors.items()}


def assert_same_source(actual, expected):
    """The model leaves out a mask without padding, and slots that no sentence uses; a graph masks these slots."""
    used = None if not expected.get("packed_out") else len(expected["packed_out"][0])
    for name, tensor in actual.items():
        if name == "packed_out":
            tensor = tensor[:used]
        elif name == "packed_padding_mask":
            assert tensor[:, used:].all()
            tensor = tensor[:, :used]
        if not expected[name]:
            assert tensor.any().item() is False
        else:
            torch.testing.assert_close(tensor, expected[name][0], **CLOSE)


@pytest.mark.parametrize("name", SOURCES)
def test_an_encoders_graph_accepts_any_batch_and_any_length_in_its_range(name):
    flags, lengths, others = SOURCES[name]
    model = small(**flags)
    axes = {0: Dim("batch"), 1: Dim("source", **lengths)}
    graph = export(EncoderForExport(model), (sentences(*EXAMPLE),), dynamic_shapes=(axes,), strict=False).module()
    for batch in (EXAMPLE, *others):
        source = sentences(*batch, left=True)
        assert_same_source(graph(source), model.encoder(source))


@pytest.mark.parametrize(("family", "length"), [("block", 9), ("fastformer", 513)])
def test_some_encoders_graphs_accept_any_batch_of_one_length(family, length):
    model = small(family)
    encoder, example = EncoderForExport(model), sentences(length, 4, 5)
    graph = export(encoder, (example,), dynamic_shapes=({0: Dim("batch")},), strict=False).module()
    for source in (example, sentences(length, 1), sentences(2, 3, length, 8)):
        assert_same_source(graph(source), model.encoder(source))
    with pytest.raises(AssertionError, match="Guard failed"):
        graph(sentences(length + 1, 4))


@pytest.mark.parametrize("flags", WITH_A_STATE.values(), ids=WITH_A_STATE)
def test_two_graphs_generate_as_the_model_does(flags):
    model = small(**flags)
    encode, step = EncoderForExport(model), DecoderStepForExport(model)
    source = encode(sentences(9, 4, 5))
    words = as_prefix(sentences(6, 6, 6, seed=2))
    _, state = step(words[:, :1].clone(), source, {})
    axes = {0: Dim.AUTO}, open_axes(source)
    first = export(step, (words[:, :1].clone(), source, {}), dynamic_shapes=(*axes, {}), strict=False).module()
    later_axes = ({0: Dim.AUTO, 1: Dim.AUTO}, open_axes(source), open_axes(state))
    later = export(step, (words[:, :3].clone(), source, state), dynamic_shapes=later_axes, strict=False)
    later = later.module()

    for batch in ((9, 4, 5), (12, 7)):
        tokens = sentences(*batch)
        words = as_prefix(sentences(*[STEPS] * len(batch), seed=3))
        log_probs, sizes = [], set()
        source, state = encode(tokens), {}
        for t in range(1, STEPS + 1):
            out, state = (later if state else first)(words[:, :t].clone(), source, state)
            log_probs.append(out)
            sizes.add(tuple(tensor.shape for tensor in state.values()))
        expected = step_by_step(model, words, model.encoder(tokens)).log_softmax(-1)
        torch.testing.assert_close(torch.stack(log_probs, dim=1), expected, **CLOSE)
        # Block attention's state grows at each step, that of the others never.
        assert len(sizes) == (STEPS if flags["family"] == "block" else 1)


@pytest.mark.parametrize("name", [name for name in ATTENTIONS if name != "block"])
def test_attentions_by_name(name):
    """Past the end of a window and of several chunks, which a graph must not take for its own end."""
    read = {field for place in ATTENTIONS[name].places for field in ATTENTIONS[name].arguments(place)}
    short = {field: size for field, size in {"attention_window": 3, "attention_chunk": 4}.items() if field in read}
    model = small("mixed", **fields_for(name), **short)
    encoder, step = EncoderForExport(model), DecoderStepForExport(model)
    tokens, words = sentences(9, 4, 5), as_prefix(sentences(12, 12, 12, seed=2))
    encode = export(encoder, (tokens,), dynamic_shapes=({0: Dim("batch")},), strict=False).module()
    source = encode(tokens)
    assert_same_source(source, model.encoder(tokens))
    if ATTENTIONS[name].places == ("encoder",):
        return  # its model has softmax attention in the decoder, which is exported under its own name
    expected = step_by_step(model, words, model.encoder(tokens)).log_softmax(-1)
    later, state, log_probs = step, {}, []
    for t in range(1, 13):
        if t == 3:
            axes = ({0: Dim.AUTO, 1: Dim.AUTO}, open_axes(source), open_axes(state))
            graph = export(step, (words[:, :t].clone(), source, state), dynamic_shapes=axes, strict=False)
            later = graph.module()
        out, state = later(words[:, :t].clone(), source, state)
        log_probs.append(out)
    torch.testing.assert_close(torch.stack(log_probs, dim=1), expected, **CLOSE)


def test_the_wrappers_do_not_change_the_model():
    model = small("luna")
    tokens = sentences(9, 9)
    before = model.encoder(tokens)["encoder_out"][0]
    EncoderForExport(model)(tokens)
    assert model.encoder(tokens)["encoder_out"][0].equal(before)
    assert model.encoder(tokens)["encoder_padding_mask"] == []


def test_the_documented_code_runs(monkeypatch):
    loaded = SimpleNamespace(models=[small("luna")], src_dict=SimpleNamespace(pad=lambda: PAD))
    loaded.eval, loaded.encode = (lambda: loaded), (lambda text: sentences(len(text.split()))[0])
    monkeypatch.setattr(fairseq_luna, "load", lambda path: loaded)
    page = (Path(__file__).parents[1] / "docs" / "translate.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    known = {}
    exec(compile(code, "docs/translate.md", "exec"), known)
    assert known["output"].shape == (2, 6)

"""Readers that the Luna paper's authors trained: their numbers, heads that have no counterpart, and what is refused."""

import re
from argparse import Namespace

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_luna.models.luna.checkpoint_names import NORM
from fairseq_luna.models.roberta import LunaRobertaModel
from fairseq_luna.usage_error import CheckpointMismatch
from readers import build
from support import PAD, golden, sentences

# fairseq computes GELU in fp32, whose last digits depend on the CPU.
ATOL = {"relu": 1e-12, "gelu": 1e-6}
CLS = "cls_classification_head"
OTHERS = "pooling_classification_head, attention_classification_head"
OUR_FLAGS = {"untie_weights_luna": "untie_weights_roberta"}


@pytest.fixture(params=["tied", "untied_fixed", "long_slots_untied_head", "one"])
def recorded(request):
    return golden("luna_roberta.pt")[request.param]


def loaded(recorded, state=None, **flags):
    """Our model with their parameters, in fp64."""
    words = Dictionary()
    for number in range(len(recorded["state_dict"]["encoder.lm_head.bias"]) - len(words)):
        words.add_symbol(f"w{number}")
    config = {OUR_FLAGS.get(name, name): value for name, value in recorded["config"].items()}
    model = LunaRobertaModel.build_model(Namespace(**config, **flags), Namespace(source_dictionary=words)).double()
    state = state or recorded["state_dict"]
    model.load_state_dict({name: value.double() for name, value in state.items()}, strict=True)
    return model.double().eval()  # the heads too, which loading adds


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name.endswith("authors_checkpoint")]


def test_the_numbers_are_theirs_and_heads_without_a_counterpart_are_named(recorded, caplog):
    model = loaded(recorded, load_checkpoint_heads=True)
    assert list(model.classification_heads) == [CLS]
    assert said(caplog) == [f"left out, because this model has no heads that compute the same: {OTHERS}"]
    tokens = recorded["tokens"]
    real = tokens.ne(PAD)
    features, logits = (model(tokens, features_only=only)[0] for only in (True, False))
    close = {"rtol": 0, "atol": ATOL[recorded["config"].get("activation_fn", "gelu")]}
    torch.testing.assert_close(features[real], recorded["features"][real], **close)
    torch.testing.assert_close(logits[real], recorded["logits"][real], **close)
    classes = model(tokens, classification_head_name=CLS)[0]
    torch.testing.assert_close(classes, recorded["heads"][CLS], **close)


def test_weights_of_norms_less_one_are_read_too(recorded):
    less_one = {n: value - 1 if NORM.search(n) else value for n, value in recorded["state_dict"].items()}
    features = loaded(recorded, less_one)(recorded["tokens"], features_only=True)[0]
    real = recorded["tokens"].ne(PAD)
    torch.testing.assert_close(features[real], recorded["features"][real], rtol=0, atol=1e-6)


def test_a_head_that_reads_other_vectors_is_no_counterpart(recorded, caplog):
    model = loaded(recorded, load_checkpoint_heads=True, pooling="mean")
    assert list(model.classification_heads) == []
    assert said(caplog) == [f"left out, because this model has no heads that compute the same: {CLS}, {OTHERS}"]


def test_an_output_of_its_own_is_not_lost():
    recorded = golden("luna_roberta.pt")["long_slots_untied_head"]
    tied = {**recorded, "config": {**recorded["config"], "untie_weights_luna": False}}
    with pytest.raises(CheckpointMismatch, match="weight are one tensor in the model and differ there"):
        loaded(tied)


# The names of an encoder of the authors' Long Range Arena and ours.
OF_LRA = {
    "encoder.sentence_encoder.": "encoder.encoder.",
    "packed_embeddings": "projected_embeddings",
    "self_attn_packed_layer_norm": "self_atten_proj_layer_norm",
    "layernorm_packed_embedding": "proj_emb_layer_norm",
    "layernorm_embedding": "emb_layer_norm",
}


def of_lra(model):
    """The encoder of ``model`` as the authors' program saves it, with a classifier: layers that are shared are one."""
    skipped = r"\.version$|\.layers\.[1-9]" if model.args.share_encoder_layers else r"\.version$"
    state = {"classifier.0.weight": torch.ones(3, 16), "sentence_projection_layer.weight": torch.ones(2, 3)}
    for name, value in model.state_dict().items():
        if name.startswith("encoder.sentence_encoder.") and not re.search(skipped, name):
            for ours, theirs in OF_LRA.items():
                name = name.replace(ours, theirs)
            state[name] = value
    return state


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_an_encoder_of_the_long_range_arena_is_read(shared, caplog):
    flags = {"untie_luna_kv": True, "share_encoder_layers": shared}
    theirs, model = build(**flags).eval(), build(seed=1, **flags).eval()
    model.load_state_dict(of_lra(theirs), strict=True)
    texts = sentences(9, 4)
    assert model(texts, features_only=True)[0].equal(theirs(texts, features_only=True)[0])
    assert said(caplog) == [
        "left out, because this model has no heads that compute the same: classifier, sentence_projection_layer",
        "encoder.lm_head.* is not in the checkpoint, which is of no language model, and is not changed",
    ]


def test_sinusoidal_positions_are_refused():
    model = build()
    state = of_lra(model)
    state["encoder.encoder.embed_positions._float_tensor"] = torch.zeros(1)
    state["encoder.encoder.projected_positions"] = torch.zeros(4, 16)
    del state["encoder.encoder.embed_positions.weight"]
    with pytest.raises(CheckpointMismatch, match=r"^has sinusoidal positions .* luna_roberta's positions are learned"):
        model.load_state_dict(state)


def test_readers_of_our_own_are_not_touched(caplog):
    first, second = build(), build(seed=1)
    second.load_state_dict(first.state_dict(), strict=True)
    assert said(caplog) == []
    for (name, ours), theirs in zip(second.named_parameters(), first.parameters(), strict=True):
        assert ours.equal(theirs), name

"""Selecting layers of a checkpoint on each side, heads, and explaining why a checkpoint does not fit the model."""

from argparse import Namespace

import pytest
import torch

from fairseq_luna.usage_error import CheckpointMismatch
from readers import EVERY_READER, HEAD, build, classify
from support import as_prefix, build_model, sentences
from variants import PRENORM

FAMILIES = ("luna", "fastformer", "block", "mixed")
ADAPTIVE = {"adaptive_softmax_cutoff": "10,20", "share_all_embeddings": False}


def logits(model):
    return model(sentences(5, 3), None, as_prefix(sentences(4, 4, seed=2)))[0]


@pytest.mark.parametrize(("family", "norms"), [*((family, {}) for family in FAMILIES), ("luna", PRENORM)])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_layers_of_one_side_are_pruned_and_the_other_side_is_unchanged(family, norms, side):
    whole = build_model(family, **{f"{side}_layers": 3}, **norms).eval()
    flags = {f"{side}_layers": 3, f"{side}_layers_to_keep": "2,0"}
    pruned = build_model(family, seed=1, **flags, **norms).eval()
    cfg = Namespace(arch=family, **flags)
    pruned.load_state_dict(whole.state_dict(), strict=True, model_cfg=cfg)
    flags.update({name: getattr(cfg, name) for name in flags})  # what a checkpoint of it has
    assert flags == {f"{side}_layers": 2, f"{side}_layers_to_keep": None}
    build_model(family, **flags, **norms).load_state_dict(pruned.state_dict(), strict=True)
    layers = getattr(whole, side).layers
    getattr(whole, side).layers = torch.nn.ModuleList([layers[0], layers[2]])
    getattr(whole, side).num_layers = 2
    torch.testing.assert_close(logits(pruned), logits(whole))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_trained_with_the_flag_is_loaded_unchanged(family):
    flags = {"encoder_layers_to_keep": "1", "decoder_layers_to_keep": "0,4"}
    trained, loaded = (build_model(family, seed=seed, **flags).eval() for seed in (0, 1))
    loaded.load_state_dict(trained.state_dict(), strict=True, model_cfg=Namespace(arch=family, **flags))
    assert logits(loaded).equal(logits(trained))


def test_kept_layers_that_the_checkpoint_does_not_have_are_missing():
    whole = build_model("luna", encoder_layers=3)
    flags = {"encoder_layers": 3, "encoder_layers_to_keep": "0,7"}
    pruned = build_model("luna", **flags)
    with pytest.raises(CheckpointMismatch, match=r"encoder\.layers\.1.* is missing"):
        pruned.load_state_dict(whole.state_dict(), strict=True, model_cfg=Namespace(arch="luna", **flags))


# Flags of the checkpoint and of the model, and the text about the first tensor.
MISFITS = {
    "dictionary": (
        *({"words": 50}, {}),
        "encoder.embed_tokens.weight is (54, 32) and the model's (44, 32), because their dictionaries differ; ",
    ),
    "layers": ({}, {"encoder_layers": 3}, "encoder.layers.2.fc1.weight (64, 32) is missing; "),
    "fewer-layers": ({"decoder_layers": 3}, {}, "decoder.layers.2.fc1.weight (64, 32) is unexpected; "),
    "packed-slots": ({}, {"projection_length": 8}, "encoder.packed_embeddings is (6, 32), the model's is (8, 32)"),
    "family": ({"family": "fastformer"}, {}, "encoder.packed_embeddings (6, 32) is missing; "),
}


@pytest.mark.parametrize(("there", "here", "first"), MISFITS.values(), ids=MISFITS)
def test_a_misfit_names_three_tensors(there, here, first):
    other = build_model(**{"family": "luna", **there})
    with pytest.raises(CheckpointMismatch) as refusal:
        build_model(**{"family": "luna", **here}).load_state_dict(other.state_dict())
    message = str(refusal.value)
    assert message.startswith(f"does not fit the model: {first}")
    assert message.count(";") <= 3
    assert "\n" not in message
    assert isinstance(refusal.value.__cause__, RuntimeError)


def test_without_strict_tensors_may_be_missing_but_shapes_must_fit():
    without, other = build_model("luna"), build_model("luna", projection_length=8)
    build_model("luna", layernorm_embedding=True).load_state_dict(without.state_dict(), strict=False)
    with pytest.raises(CheckpointMismatch, match=r"\(8, 32\), the model's is \(6, 32\)$"):
        build_model("luna", layernorm_embedding=True).load_state_dict(other.state_dict(), strict=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_that_the_model_shares_are_not_lost(family):
    apart, shared = build_model(family, share_all_embeddings=False), build_model(family)
    with pytest.raises(CheckpointMismatch) as raised:
        shared.load_state_dict(apart.state_dict())
    assert str(raised.value) == (
        "does not fit the model: encoder.embed_tokens.weight and decoder.embed_tokens.weight are one tensor in the"
        " model and differ there"
    )
    copied = {name: value.clone() for name, value in shared.state_dict().items()}
    build_model(family, seed=1).load_state_dict(copied)


def without_versions(state):
    return {name: value.clone() for name, value in state.items() if not name.endswith(".version")}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("flags", [{}, PRENORM, ADAPTIVE], ids=["post-norm", "pre-norm", "adaptive"])
def test_a_state_without_versions_is_whole(family, flags):
    model, loaded = (build_model(family, seed=seed, **flags).eval() for seed in (0, 1))
    for norm in (model.encoder.layer_norm, model.decoder.layer_norm):
        if norm is not None:
            torch.nn.init.uniform_(norm.weight, 2, 3)
    loaded.load_state_dict(without_versions(model.state_dict()))
    assert logits(loaded).equal(logits(model))
    assert loaded.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_norm_that_is_missing_is_not_removed_from_the_model(family, side):
    model = build_model(family, **PRENORM)
    state = without_versions(model.state_dict())
    del state[f"{side}.layer_norm.weight"]
    with pytest.raises(CheckpointMismatch, match=rf"{side}.layer_norm.weight \(32,\) is missing$"):
        build_model(family, **PRENORM).load_state_dict(state)


@pytest.mark.parametrize("variant", EVERY_READER)
def test_a_readers_state_without_versions_is_whole(variant):
    reader, loaded = (build(variant, seed=seed).eval() for seed in (0, 1))
    for name, parameter in reader.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 2)
    loaded.load_state_dict(without_versions(reader.state_dict()))
    texts = sentences(9, 4)
    assert classify(loaded, texts).equal(classify(reader, texts))


def test_a_language_model_is_loaded_into_a_classifier_with_new_heads():
    pretrained = build()
    state = {name: value for name, value in pretrained.state_dict().items() if not name.startswith("classification")}
    model = build(seed=1, pooling="attention")
    head = model.classification_heads[HEAD].out_proj.weight.clone()
    model.load_state_dict(state)
    texts = sentences(9, 4)
    assert model.eval()(texts)[0].equal(pretrained.eval()(texts)[0])
    assert model.classification_heads[HEAD].out_proj.weight.equal(head)


def test_a_checkpoints_heads_are_loaded_on_request():
    trained = build(pooling="attention").eval()
    trained.register_classification_head("other", num_classes=5, inner_dim=7)
    model = build(seed=1, pooling="attention", load_checkpoint_heads=True).eval()
    model.load_state_dict(trained.state_dict())
    texts = sentences(9, 4)
    for name in (HEAD, "other"):
        out = [each(texts, classification_head_name=name)[0] for each in (trained, model)]
        assert out[0].equal(out[1])
    dropped = build(seed=1, pooling="attention")
    dropped.load_state_dict(trained.state_dict())
    assert list(dropped.classification_heads) == [HEAD]


@pytest.mark.parametrize("variant", ["luna", "luna-prenorm", "mixed-fastformer"])
@pytest.mark.parametrize("trained_with", [False, True])
@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_layers_of_a_reader_are_pruned(variant, trained_with, shared):
    every = {"encoder_layers": 4, "share_encoder_layers": shared}
    flags = {**every, "encoder_layers_to_keep": "0,2"}
    state = build(variant, **(flags if trained_with else every)).state_dict()
    model = build(variant, seed=1, **flags)
    model.load_state_dict(dict(state), model_cfg=Namespace(arch=variant, **flags))
    for own, its in ((0, 0), (1, 1 if trained_with else 2)):
        kept, given = (f"encoder.sentence_encoder.layers.{number}.fc1.weight" for number in (own, its))
        assert model.state_dict()[kept].equal(state[given])
    assert torch.isfinite(classify(model, sentences(20, 33))).all()


@pytest.mark.parametrize(
    ("variant", "flags", "message"),
    [
        ("pyramid", {"encoder_embed_dim": 8}, r"encoder.embed_tokens.weight is \("),
        ("luna", {"max_positions": 32}, r"embed_positions.weight is \(34, 16\)"),
        ("luna", {"projection_length": 8}, r"packed_embeddings is \(8, 16\)"),
        ("luna", {"pooling": "attention"}, r"pooling.hidden.weight \(16, 16\) is unexpected"),
        ("mixed-linformer", {"max_positions": 32, "num_slots": 8}, r"key_sums is \(8, 32\), the model's is \(4, 64\)"),
    ],
)
def test_a_reader_that_does_not_fit_is_explained(variant, flags, message):
    fields = {"num_slots": 4} if "linformer" in variant else {}
    with pytest.raises(CheckpointMismatch, match=message):
        build(variant, **fields).load_state_dict(build(variant, **{**fields, **flags}).state_dict())

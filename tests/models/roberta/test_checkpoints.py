"""State dicts of RoBERTa with other attentions: heads, chosen layers, explanations."""

from argparse import Namespace

import pytest
import torch

from fairseq_luna.usage_error import CheckpointMismatch
from readers import HEAD, build, classify
from support import sentences


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
def test_layers_to_keep(variant, trained_with, shared):
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
        ("luna", {"max_positions": 32}, r"embed_positions.weight is \(34, 16\).*Check --max-positions$"),
        ("luna", {"projection_length": 8}, r"packed_embeddings is \(8, 16\).*Check --projection-length$"),
        ("luna", {"encoder_embed_dim": 8}, r"embed_tokens.weight is \(44, 8\).*Check .*--encoder-embed-dim"),
        ("luna", {"encoder_layers": 3}, r"layers.2.* is unexpected.*Check .*--encoder-layers"),
        ("luna", {"pooling": "attention"}, r"pooling.hidden.weight \(16, 16\) is unexpected.*Check --pooling$"),
        ("mixed-linformer", {"max_positions": 32, "num_slots": 8}, "Check --max-positions, --num-slots$"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_explained(variant, flags, message):
    fields = {"num_slots": 4} if "linformer" in variant else {}
    with pytest.raises(CheckpointMismatch, match=message):
        build(variant, **fields).load_state_dict(build(variant, **{**fields, **flags}).state_dict())

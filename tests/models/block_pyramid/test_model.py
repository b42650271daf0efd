"""The pyramid: branches, heads, config."""

from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_luna.models.block_pyramid.config import PyramidConfig
from fairseq_luna.usage_error import CheckpointMismatch
from support import PAD, sentences, translation_task

SMALL = {
    "pyramid_block_sizes": "2,4",
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 32,
    "encoder_layers": 3,
    "encoder_attention_heads": 2,
    "dropout": 0.0,
    "max_positions": 64,
}
HEAD = "sentence_classification_head"
VARIANTS = {
    "default": {},
    "prenorm": {"encoder_normalize_before": True},
    "learned-positions": {"encoder_learned_pos": True},
    "no-positions": {"no_token_positional_embeddings": True},
    "one-branch": {"pyramid_block_sizes": "8", "activation_fn": "gelu"},
    "mean-at-the-end": {"encoder_layers": 1},
}
EVERY_VARIANT = pytest.mark.parametrize("flags", VARIANTS.values(), ids=VARIANTS.keys())
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def build(**flags):
    torch.manual_seed(0)
    model = MODEL_REGISTRY["block_pyramid_classifier"].build_model(Namespace(**{**SMALL, **flags}), translation_task())
    model.register_classification_head(HEAD, num_classes=3)
    return model


def logits(model, texts):
    return model(texts, texts.ne(PAD).sum(1), features_only=True, classification_head_name=HEAD)[0]


def by_loops(model, text):
    """Features of one text without padding: layers are post-norm, blocks are slices."""
    encoder = model.encoder
    embedded = encoder.embed_scale * encoder.embed_tokens(text[None]) + encoder.embed_positions(text[None])
    tops = []
    for branch in encoder.branches:
        x = embedded[0]
        for layer in branch.layers:
            count = -(-len(x) // layer.block_size)
            ends = [-(-i * len(x) // count) for i in range(count + 1)]
            x = torch.stack([layer_by_hand(layer, x[ends[i] : ends[i + 1]]).mean(0) for i in range(count)])
        tops.append(x.mean(0))
    return torch.cat(tops)


def layer_by_hand(layer, block):
    attention = layer.self_attn
    q, k, v = (
        proj(block).unflatten(-1, (attention.num_heads, -1)).transpose(0, 1)
        for proj in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
    attended = attention.out_proj((weights @ v).transpose(0, 1).flatten(1))
    x = layer.self_attn_layer_norm(block + attended)
    return layer.final_layer_norm(x + layer.fc2(F.relu(layer.fc1(x))))


@pytest.mark.parametrize("layers", [1, 2, 6])
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_equals_loops_over_texts_and_blocks(layers, left):
    model = build(encoder_layers=layers).double()
    texts = sentences(37, 1, 4, 18, left=left)
    features, _ = model(texts)
    expected = torch.stack([by_loops(model, text[text.ne(PAD)]) for text in texts])
    torch.testing.assert_close(features, expected)
    wanted = list(model.encoder.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(features.square().sum(), wanted), torch.autograd.grad(expected.square().sum(), wanted)
    )


@EVERY_VARIANT
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_a_text_has_the_same_class_alone_and_in_a_batch(flags, left):
    model = build(**flags).eval()
    texts = sentences(50, 1, 9, 33, left=left)
    together = logits(model, texts)
    assert together.shape == (4, 3)
    for row, text in enumerate(texts):
        torch.testing.assert_close(together[row], logits(model, text[text.ne(PAD)][None])[0], **CLOSE)


@EVERY_VARIANT
def test_every_parameter_has_a_gradient_from_a_long_text(flags):
    model = build(**flags)
    F.cross_entropy(logits(model, sentences(64, 60)), torch.tensor([0, 2])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # A bias of the keys adds the same number to all scores of a softmax, which ignores it.
        if not name.endswith("k_proj.bias"):
            assert parameter.grad.abs().max() > 0, name


def test_every_parameter_has_a_gradient_from_a_word():
    model = build()
    logits(model, sentences(1)).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_a_branch_has_no_more_layers_than_the_longest_text_needs():
    def depths(**flags):
        return [len(branch.layers) for branch in build(**flags).encoder.branches]

    assert depths(encoder_layers=6) == [6, 3]
    assert depths(encoder_layers=6, max_source_positions=65) == [6, 4]
    assert depths(encoder_layers=2) == [2, 2]
    assert depths(max_source_positions=1) == [1, 1]


def test_word_order_matters_only_through_positions():
    texts = sentences(30, 30)
    texts[1] = texts[0]
    texts[1, :2] = texts[0, :2].flip(0)  # in one block of each branch
    for flags, same in (({}, False), ({"no_token_positional_embeddings": True}, True)):
        first, second = logits(build(**flags).eval(), texts)
        assert torch.allclose(first, second, atol=1e-5) == same


def test_heads_are_separate_and_without_one_features_are_returned():
    model = build().eval()
    model.register_classification_head("other", num_classes=5, inner_dim=7)
    texts = sentences(9, 4)
    assert model(texts, classification_head_name="other")[0].shape == (2, 5)
    assert model(texts)[0].shape == (2, 32)
    assert model.classification_heads["other"].dense.out_features == 7


def test_probabilities():
    model = build().eval()
    output = model(sentences(9, 4), classification_head_name=HEAD)
    probabilities = model.get_normalized_probs(output, log_probs=False)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2))
    torch.testing.assert_close(model.get_normalized_probs(output, log_probs=True).exp(), probabilities)


def test_a_checkpoint_of_other_sizes_is_explained():
    with pytest.raises(CheckpointMismatch, match=r"encoder.embed_tokens.weight is \(.*Check .*--encoder-embed-dim"):
        build(encoder_embed_dim=8).load_state_dict(build(encoder_embed_dim=16).state_dict())


def test_the_longest_text_defaults_to_the_tasks():
    assert build().max_positions() == 64
    assert build(max_source_positions=20).max_positions() == 20


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 5e-2), (torch.float16, 1e-2)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(dtype, bound):
    texts = sentences(64, 40)
    expected, out = logits(build().eval(), texts), logits(build().eval().to(dtype), texts)
    assert out.dtype == dtype
    assert (out.float() - expected).abs().max() < bound * expected.abs().max()


def test_hydra_sets_the_flags_and_the_tasks_length():
    config, task = OmegaConf.structured(PyramidConfig()), translation_task()
    config.pyramid_block_sizes = "2"
    task.cfg, task.max_positions = Namespace(_name="sentence_prediction"), lambda: 30
    model = MODEL_REGISTRY["block_pyramid_classifier"].build_model(config, task)
    assert model.max_positions() == 30
    assert [len(branch.layers) for branch in model.encoder.branches] == [5]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"pyramid_block_sizes": "4,x"}, "--pyramid-block-sizes 4,x: must be numbers of 2 or more"),
        ({"pyramid_block_sizes": "1"}, "--pyramid-block-sizes 1: must be"),
        ({"pyramid_block_sizes": "-4"}, "--pyramid-block-sizes -4: must be"),
        ({"pyramid_block_sizes": ""}, "--pyramid-block-sizes : must be"),
        ({"encoder_layers": 0}, "--encoder-layers 0: must be 1 or more"),
        ({"encoder_attention_heads": 3}, "--encoder-attention-heads 3: must be 1 or more and divide"),
        ({"encoder_attention_heads": 0}, "--encoder-attention-heads 0: must be"),
        ({"max_source_positions": 0}, "--max-source-positions 0: must be 1 or more"),
    ],
)
def test_bad_values_are_refused_by_name(flags, message):
    with pytest.raises(ValueError, match=message):
        build(**flags)

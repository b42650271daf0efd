"""The pyramid: its numbers, branches, heads and config."""

from argparse import Namespace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import MODEL_REGISTRY
from omegaconf import OmegaConf

import readers
from fairseq_luna.models.block_pyramid.config import PyramidConfig
from readers import HEAD
from support import PAD, sentences, translation_task

build, logits = partial(readers.build, "pyramid"), readers.classify


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


def test_the_longest_text_defaults_to_the_tasks():
    assert build().max_positions() == 64
    assert build(max_source_positions=20).max_positions() == 20


def test_hydra_sets_the_flags_and_the_tasks_length():
    config, task = OmegaConf.structured(PyramidConfig()), translation_task()
    config.pyramid_block_sizes = "2"
    task.cfg, task.max_positions = Namespace(_name="sentence_prediction"), lambda: 30
    model = MODEL_REGISTRY["block_pyramid_classifier"].build_model(config, task)
    assert model.max_positions() == 30
    assert [len(branch.layers) for branch in model.encoder.branches] == [5]

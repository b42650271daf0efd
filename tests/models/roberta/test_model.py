"""RoBERTa with other attentions: what is fairseq's, its heads, layers that are one."""

from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import MODEL_REGISTRY

from readers import HEAD, POOLINGS, build, classify
from support import CLOSE, PAD, sentences, translation_task

FAMILIES = pytest.mark.parametrize("variant", ["luna", "mixed-fastformer"])


@pytest.mark.parametrize("flags", [{}, {"encoder_normalize_before": True, "layernorm_embedding": False}])
def test_with_softmax_attention_it_is_fairseqs_roberta(flags):
    theirs, ours = build(model="roberta", **flags), build("mixed-softmax", seed=1, **flags)
    own = ours.state_dict()
    # fairseq 0.12.2's encoder layers hold a second, untrained copy of their weights.
    ours.load_state_dict({name: value for name, value in theirs.state_dict().items() if name in own})
    texts = sentences(20, 33, 2)
    results = []
    for model in (theirs, ours):
        masked = model(texts, masked_tokens=texts.eq(texts[0, 3]))[0]
        words, inner = model(texts, return_all_hiddens=True)
        classes = classify(model, texts)
        (words.square().mean() + classes.square().sum()).backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        # fairseq's does not reset the vectors of padding, and no layer reads them.
        results.append((words[texts.ne(PAD)], masked, classes, len(inner["inner_states"]), gradients))
    torch.testing.assert_close(results[1], results[0])


def test_what_a_head_reads_of_a_text():
    texts = sentences(9, 4)
    read = {}
    for pooling in POOLINGS:
        model = build(pooling=pooling).eval()
        head = model.classification_heads[HEAD]
        head.dense.register_forward_pre_hook(lambda _, given, name=pooling: read.update({name: given[0]}))
        classify(model, texts)
    features = model(texts, features_only=True)[0]
    attention = model.classification_heads[HEAD].pooling
    torch.testing.assert_close(read["cls"], features[:, 0])
    for row, length in enumerate((9, 4)):
        steps = features[row, :length]
        torch.testing.assert_close(read["mean"][row], steps.mean(0))
        hidden = torch.tanh(steps @ attention.hidden.weight.t() + attention.hidden.bias)
        weights = (hidden @ attention.score.weight[0]).softmax(0)
        torch.testing.assert_close(read["attention"][row], weights @ steps)


@pytest.mark.parametrize("pooling", POOLINGS[1:])
def test_a_pooling_head_without_a_mask_takes_a_single_text(pooling):
    model = build(pooling=pooling).eval()
    head = model.classification_heads[HEAD]
    text = sentences(9)
    torch.testing.assert_close(head(model(text, features_only=True)[0]), classify(model, text))
    with pytest.raises(ValueError, match=f"--pooling {pooling}: 2 texts need a padding_mask"):
        head(model(sentences(9, 4), features_only=True)[0])


@FAMILIES
def test_layers_that_are_one(variant):
    shared, apart = build(variant, share_encoder_layers=True), build(variant, seed=1)
    trained = dict(apart.named_parameters())
    apart.load_state_dict({name: value for name, value in shared.state_dict().items() if name in trained}, strict=False)
    texts, outputs = sentences(20, 33), [model.eval()(sentences(20, 33))[0] for model in (shared, apart)]
    torch.testing.assert_close(*outputs)
    for out in outputs:
        F.cross_entropy(out.flatten(0, 1), texts.flatten()).backward()
    places = "encoder.sentence_encoder.layers.{}."
    for name, parameter in shared.named_parameters():
        if ".layers." in name:
            [start, end] = name.split(places.format(0))  # it has no other layer
            copies = [trained.get(start + places.format(layer) + end) for layer in range(2)]
            total = sum(copy.grad for copy in copies if copy is not None and copy.grad is not None)
            torch.testing.assert_close(parameter.grad, total, **CLOSE)


def test_input_and_output_embeddings_are_one_unless_untied():
    for flags, same in (({}, True), ({"untie_weights_roberta": True}, False)):
        encoder = build(**flags).encoder
        assert (encoder.lm_head.weight is encoder.sentence_encoder.embed_tokens.weight) == same


def test_the_longest_text_defaults_to_the_tasks():
    task = translation_task()
    for described in (
        {"max_positions": lambda: 30},
        {"max_positions": lambda: None, "cfg": Namespace(tokens_per_sample=30)},
    ):
        vars(task).update(described)
        model = MODEL_REGISTRY["luna_roberta"].build_model(Namespace(encoder_layers=1, encoder_embed_dim=12), task)
        assert model.max_positions() == 30

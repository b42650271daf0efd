"""RoBERTa with other attentions: the correctness bar, and what is fairseq's."""

import pytest
import torch
import torch.nn.functional as F

from readers import HEAD, POOLINGS, READERS, build, classify
from support import PAD, sentences

EVERY_VARIANT = pytest.mark.parametrize("variant", READERS)
EVERY_POOLING = pytest.mark.parametrize("pooling", POOLINGS)
FAMILIES = pytest.mark.parametrize("variant", ["luna", "mixed-fastformer"])
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@EVERY_VARIANT
def test_every_parameter_gets_a_gradient(variant):
    model = build(variant, pooling="attention")
    texts = sentences(20, 33)
    masked = texts.ne(PAD)
    F.cross_entropy(model(texts, masked_tokens=masked)[0], texts[masked]).backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {name for name, _ in model.named_parameters() if name.startswith("classification_heads.")}
    model.zero_grad()
    F.cross_entropy(classify(model, texts), torch.tensor([0, 2])).backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert all(name.startswith("encoder.lm_head.") for name in without)


@EVERY_VARIANT
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_padding_changes_no_word_and_no_class(variant, left):
    texts = sentences(40, 1, 9, 33, left=left)
    for pooling in POOLINGS if not left else POOLINGS[1:]:  # the first vector of a text padded on the left is padding
        model = build(variant, pooling=pooling).eval()
        words, classes = model(texts)[0], classify(model, texts)
        for row, text in enumerate(texts):
            alone = text[text.ne(PAD)][None]
            torch.testing.assert_close(words[row, text.ne(PAD)], model(alone)[0][0], **CLOSE)
            torch.testing.assert_close(classes[row], classify(model, alone)[0], **CLOSE)


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


@FAMILIES
def test_checkpointed_activations_change_nothing(variant):
    gradients = []
    for flags in ({}, {"checkpoint_activations": True}):
        model = build(variant, dropout=0.1, **flags)
        torch.manual_seed(1)
        classify(model, sentences(20, 33)).square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradients[1], gradients[0])


@EVERY_POOLING
@FAMILIES
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(variant, pooling, dtype, bound):
    texts = sentences(64, 40)
    model, half = (build(variant, pooling=pooling).eval() for _ in range(2))
    half.to(dtype)
    for expected, out in ((classify(model, texts), classify(half, texts)), (model(texts)[0], half(texts)[0])):
        assert out.dtype == dtype
        assert (out.float() - expected).abs().max() < bound * expected.abs().max()
    out.float().square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in half.parameters() if p.grad is not None)


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


@FAMILIES
def test_dropout_and_layer_drop_act_only_in_training(variant):
    model = build(variant, dropout=0.2, attention_dropout=0.2, encoder_layerdrop=0.5)
    texts = sentences(20, 33)
    assert not classify(model, texts).equal(classify(model, texts))
    model.eval()
    assert classify(model, texts).equal(classify(model, texts))


@FAMILIES
def test_learns_the_words_that_are_masked(variant):
    model = build(variant, encoder_embed_dim=32)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    mask = 43
    for step in range(200):
        # Every text is one word repeated, so that a masked word is one of its neighbours.
        texts = torch.randint(4, 40, (32, 1), generator=torch.Generator().manual_seed(step)).expand(-1, 8)
        masked = torch.zeros_like(texts, dtype=torch.bool)
        masked[:, step % 8] = True
        loss = F.cross_entropy(model(texts.masked_fill(masked, mask), masked_tokens=masked)[0], texts[masked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1

"""Whole readers of texts: RoBERTas with each attention, and the pyramid with each of its flags.

tests/test_devices.py sees that every parameter gets a gradient.
"""

import pytest
import torch

from readers import EVERY_READER, POOLINGS, build, classify
from support import CLOSE, PAD, sentences

EVERY_VARIANT = pytest.mark.parametrize("variant", EVERY_READER)
FAMILIES = pytest.mark.parametrize("variant", ["luna", "mixed-fastformer", "pyramid"])


def names_words(variant):
    return not variant.startswith("pyramid")


@EVERY_VARIANT
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_padding_changes_no_word_and_no_class(variant, left):
    texts = sentences(50, 1, 9, 33, left=left)
    # The first vector of a text that is padded on the left is padding.
    for pooling in POOLINGS[left:] if names_words(variant) else POOLINGS[:1]:
        model = build(variant, pooling=pooling).eval()
        words, classes = model(texts)[0], classify(model, texts)
        assert classes.shape == (4, 3)
        for row, text in enumerate(texts):
            real = text.ne(PAD)
            torch.testing.assert_close(classes[row], classify(model, text[real][None])[0], **CLOSE)
            own = words[row, real] if names_words(variant) else words[row]
            torch.testing.assert_close(own, model(text[real][None])[0][0], **CLOSE)


@FAMILIES
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(variant, dtype, bound):
    texts = sentences(64, 40)
    for pooling in POOLINGS if names_words(variant) else POOLINGS[:1]:
        model, half = (build(variant, pooling=pooling).eval() for _ in range(2))
        half.to(dtype)
        for expected, out in ((classify(model, texts), classify(half, texts)), (model(texts)[0], half(texts)[0])):
            assert out.dtype == dtype
            assert (out.float() - expected).abs().max() < bound * expected.abs().max()
        out.float().square().sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in half.parameters() if p.grad is not None)


@FAMILIES
def test_dropout_and_layer_drop_act_only_in_training(variant):
    model = build(variant, dropout=0.2, attention_dropout=0.2, encoder_layerdrop=0.5)
    texts = sentences(20, 33)
    assert not classify(model, texts).equal(classify(model, texts))
    model.eval()
    assert classify(model, texts).equal(classify(model, texts))

"""Attention to the source trained with word alignments, as fairseq's transformer can be (arXiv 1909.02074)."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)
from fairseq.models import MODEL_REGISTRY

from fairseq_luna.usage_error import UsageError
from support import PAD, TINY, as_prefix, build_luna, sentences, translation_task

TRAINED = {
    "luna": ("luna", {}),
    "luna-softmax-source": ("luna", {"luna_source_attention": "softmax"}),
    "fastformer": ("fastformer", {}),
    "block": ("block", {}),
    **{name: ("mixed", {"source_attention": name}) for name in ("softmax", "linear", "performer", "efficient")},
}


def build(family, **flags):
    """A model of a task with --load-alignments, and its criterion."""
    torch.manual_seed(0)
    task = translation_task(10)
    task.cfg = Namespace(load_alignments=True)
    model = MODEL_REGISTRY[family].build_model(Namespace(**{**TINY, **flags}), task)
    return model, LabelSmoothedCrossEntropyCriterionWithAlignment(task, False, 0.1, alignment_lambda=1.0)


def reversed_sentences():
    """A batch whose targets are the sources reversed, with alignments as fairseq's collater makes them."""
    source = sentences(6, 3, 5, words=10)
    lengths = source.ne(PAD).sum(1)
    target = source.clone()
    pairs = []
    for row, length in enumerate(lengths.tolist()):
        target[row, : length - 1] = source[row, : length - 1].flip(0)
        pairs += [(length - 2 - step, row * target.shape[1] + step) for step in range(length - 1)]
    return {
        "net_input": {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": as_prefix(target)},
        "target": target,
        "ntokens": int(lengths.sum()),
        "alignments": torch.tensor(pairs),
        "align_weights": torch.ones(len(pairs)),
    }


@pytest.mark.parametrize(("family", "flags"), TRAINED.values(), ids=TRAINED)
def test_training_aligns(family, flags):
    model, criterion = build(family, **flags)
    optimizer, sample, losses = torch.optim.Adam(model.parameters(), lr=1e-2), reversed_sentences(), []
    for _ in range(30):
        loss, _, log = criterion(model, sample)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(log["alignment_loss"])
    assert losses[-1] < 0.9 * losses[0]


def test_the_loss_is_that_of_fairseqs_transformer():
    losses, transformer = [], None
    for family in ("transformer", "mixed"):
        model, criterion = build(family)
        transformer = transformer or model
        own = model.state_dict()
        model.load_state_dict({name: value for name, value in transformer.state_dict().items() if name in own})
        losses.append(criterion(model, reversed_sentences())[2])
    assert losses[1] == pytest.approx(losses[0])


OTHERS = [(0, 2), (0, None), (1, 2)]  # layers and heads


@pytest.mark.parametrize("family", ["luna", "fastformer", "block", "mixed"])
def test_the_flags_choose_layer_and_heads(family):
    model, _ = build(family, alignment_layer=0, alignment_heads=2)
    sample = reversed_sentences()["net_input"]
    encoder_out = model.encoder(sample["src_tokens"], sample["src_lengths"])
    chosen, given, of_all_heads, of_another_layer = (
        model.decoder(sample["prev_output_tokens"], encoder_out=encoder_out, **options)[1]["attn"][0]
        for options in ({}, *({"alignment_layer": layer, "alignment_heads": heads} for layer, heads in OTHERS))
    )
    torch.testing.assert_close(chosen, given)
    assert min((chosen - others).abs().max() for others in (of_all_heads, of_another_layer)) > 1e-6


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"source_attention": "rfa"}, "--load-alignments: with --source-attention rfa its weights may be negative"),
        ({"source_attention": "topk"}, "--load-alignments: with --source-attention topk most of its weights are 0"),
        ({"source_attention": "linformer"}, "--source-attention linformer its weights may be negative"),
        ({"decoder_layerdrop": 0.2}, "--load-alignments: with --decoder-layerdrop 0.2 its layer may be left out"),
        ({"alignment_layer": 2}, "--alignment-layer 2: must be at least 0 and at most 1"),
        ({"alignment_layer": 1, "decoder_layers_to_keep": "1"}, "--alignment-layer 1: must be at least 0 and at most"),
        ({"alignment_layer": -1}, "--alignment-layer -1: must be"),
        ({"alignment_heads": 5}, "--alignment-heads 5: must be at least 1 and at most 4"),
        ({"alignment_heads": 0}, "--alignment-heads 0: must be"),
    ],
)
def test_what_cannot_be_aligned_is_refused_in_one_line(flags, said):
    with pytest.raises(ValueError) as refused:
        build("mixed", **flags)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_attention_to_the_source_nothing_is_aligned():
    flags = {"cross_self_attention": True, "no_cross_attention": True}
    with pytest.raises(UsageError, match="--load-alignments: with --no-cross-attention there is no"):
        build("luna", **flags)
    with pytest.raises(UsageError, match="--alignment-heads 1: with --no-cross-attention there is no"):
        build("luna", **flags, alignment_heads=1)
    model = build_luna(**flags).eval()
    model.make_generation_fast_(need_attn="hard")
    with pytest.raises(UsageError, match="--print-alignment: this model has no cross-attention"):
        model(sentences(5), None, as_prefix(sentences(5)))

"""A training step that is recorded once and replayed on other batches has the loss and gradients of an eager step."""

from argparse import Namespace
from functools import partial

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import MODEL_REGISTRY
from fairseq.optim import FairseqOptimizer
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler

import operator_tape
from fairseq_luna.criterions import LabelSmoothedCrossEntropyChunked
from fairseq_luna.models.mixed.attentions import ATTENTIONS
from fairseq_luna.recorded_training import FlatGradients, RecordedStep, RecordedTraining
from fairseq_luna.recorded_training.known_padding import KEY, TokensOfKnownPadding, padding_by_name
from support import PAD, as_prefix, build_model, sentences, translation_task

WORDS = 40
PADS = {"src_tokens": PAD, "prev_output_tokens": PAD}
# Lengths of sources and targets: three batches of one shape, with padding, and one without.
PADDED = [((9, 7, 4), (6, 8, 2)), ((9, 3, 9), (8, 8, 5)), ((2, 9, 9), (3, 8, 7))]
FULL = [((9, 9, 9), (8, 8, 8))] * 3
FAMILIES = {
    "luna": {},
    "luna-softmax-source": {"luna_source_attention": "softmax"},
    "fastformer": {},
    "block": {},
    "transformer": {},
}
TRANSFORMER = {
    **{f"{side}_embed_dim": 16 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": 16 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{"share_all_embeddings": True, "dropout": 0.0},
}


def model_of(name, **flags):
    """A model of a family, or of ``mixed`` with this attention wherever it can stand, whose outputs are not uniform."""
    flags = {"encoder_layers": 1, "decoder_layers": 1, **flags}
    if name == "transformer":
        torch.manual_seed(0)
        model = MODEL_REGISTRY[name].build_model(Namespace(**TRANSFORMER, **flags), translation_task(WORDS))
    elif name in FAMILIES:
        model = build_model(name.partition("-")[0], words=WORDS, **FAMILIES[name], **flags)
    else:
        model = build_model("mixed", words=WORDS, **ATTENTIONS[name].fields(name), **flags)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model.train()


def batch(lengths, seed):
    """A batch as fairseq's trainer prepares it."""
    source, target = (sentences(*some, words=WORDS, seed=seed, left=left) for some, left in zip(lengths, (True, False)))
    net_input = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1), "prev_output_tokens": as_prefix(target)}
    sample = {"net_input": net_input, "target": target, "ntokens": int(target.ne(PAD).sum()), "nsentences": len(target)}
    return {**sample, KEY: padding_by_name(net_input, PADS)}


def batches(shapes):
    return [batch(lengths, seed) for seed, lengths in enumerate(shapes)]


def criterion_of(kind=LabelSmoothedCrossEntropyCriterion, **options):
    return kind(translation_task(WORDS), **{"sentence_avg": False, "label_smoothing": 0.1, **options})


class Optimizer(FairseqOptimizer):
    """As much of an optimizer as a step needs, with the loss scale of fairseq's for half precision."""

    def __init__(self, loss_scale=None):
        self.scaler = None if loss_scale is None else DynamicLossScaler(init_scale=loss_scale)

    def backward(self, loss):
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    backward.__module__ = FairseqOptimizer.__module__


def eager(model, criterion, sample, scale=1.0):
    """Loss, report and gradients of a step."""
    model.zero_grad()
    loss, _, log = criterion(model, sample)
    (loss * scale).backward()
    return loss.detach(), log, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def recorded_step(model, criterion, sample, **options):
    gradients = FlatGradients(p for p in model.parameters() if p.requires_grad)
    options = {"optimizer": None, "pads": PADS, "has_padding": sample[KEY], "record": operator_tape.record, **options}
    return RecordedStep(sample, model=model, criterion=criterion, gradients=gradients, **options)


@pytest.mark.parametrize("name", [*FAMILIES, *ATTENTIONS])
@pytest.mark.parametrize("shapes", [PADDED, FULL], ids=["padded", "full"])
def test_a_replay_has_the_loss_and_gradients_of_an_eager_step(name, shapes):
    model = model_of(name)
    for kind in (LabelSmoothedCrossEntropyCriterion, LabelSmoothedCrossEntropyChunked):
        criterion, samples = criterion_of(kind), batches(shapes)
        expected = [eager(model, criterion, sample) for sample in samples]
        step = recorded_step(model, criterion, samples[0])
        for sample, (loss, log, gradients) in zip(samples[1:], expected[1:], strict=True):
            model.zero_grad()
            replayed, report = step.replay(sample)
            found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
            assert found.keys() == gradients.keys()
            torch.testing.assert_close(
                (replayed, report["nll_loss"], found), (loss, log["nll_loss"], gradients), rtol=0, atol=0
            )
        assert not torch.equal(expected[0][0], expected[1][0])

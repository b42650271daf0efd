"""Tiny models and batches for training steps outside of a trainer."""

from argparse import Namespace

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import MODEL_REGISTRY

import operator_tape
from fairseq_luna import cuda_graph
from fairseq_luna.models.mixed.chosen_attentions import fields_for
from fairseq_luna.recorded_training.known_padding import KEY, padding_by_name
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
ON_GPU = torch.get_default_device().type == "cuda"
record = cuda_graph.record if ON_GPU else operator_tape.record
# A GPU may add gradients in another order at each call.
SAME = {} if ON_GPU else {"rtol": 0, "atol": 0}


def model_of(name, **flags):
    """A model of a family, or of ``mixed`` with this attention wherever it can stand, whose outputs are not uniform."""
    flags = {"encoder_layers": 1, "decoder_layers": 1, **flags}
    if name == "transformer":
        torch.manual_seed(0)
        model = MODEL_REGISTRY[name].build_model(Namespace(**TRANSFORMER, **flags), translation_task(WORDS))
    elif name in FAMILIES:
        model = build_model(name.partition("-")[0], words=WORDS, **FAMILIES[name], **flags)
    else:
        model = build_model("mixed", words=WORDS, **fields_for(name), **flags)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model.train()


def batch(lengths, seed):
    """A batch as fairseq's trainer prepares it."""
    source = sentences(*lengths[0], words=WORDS, seed=seed, left=True)
    target = sentences(*lengths[1], words=WORDS, seed=seed)
    net_input = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1), "prev_output_tokens": as_prefix(target)}
    sample = {"net_input": net_input, "target": target, "ntokens": int(target.ne(PAD).sum()), "nsentences": len(target)}
    return {**sample, KEY: padding_by_name(net_input, PADS)}


def batches(shapes):
    return [batch(lengths, seed) for seed, lengths in enumerate(shapes)]


def criterion_of(kind=LabelSmoothedCrossEntropyCriterion, **options):
    return kind(translation_task(WORDS), **{"sentence_avg": False, "label_smoothing": 0.1, **options})


def eager(model, criterion, sample, scale=1.0):
    """Loss, report and gradients of a step."""
    model.zero_grad()
    loss, _, log = criterion(model, sample)
    (loss * scale).backward()
    return loss.detach(), log, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

"""Whole models under torch.compile, over batches of several shapes in a row, compute what they compute without it.

The first batch is compiled for its shape, the second for any (dynamic shapes), and the others use that graph, unless a
size is 1. ``pytest -m inductor`` compares what a C++ compiler makes of every model: docs/reliability.md.
"""

from argparse import Namespace
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch._dynamo.utils import counters
from torch._inductor import config as inductor_config

import readers
from support import PAD, as_prefix, build_model, sentences
from variants import VARIANTS

# fairseq's wrapper for --checkpoint-activations cannot be compiled.
MODELS = {name: flags for name, flags in VARIANTS.items() if "checkpoint_activations" not in flags}
# With a convolution before it, where an attention has none of its own.
CONVOLVED = {
    f"{name}-convolved": {**flags, "attention_kernel_size": 3}
    for name, flags in MODELS.items()
    if name in ("mixed-linear", "mixed-topk", "mixed-retention")
}
MODELS = {"transformer": {"family": "transformer"}, **MODELS, **CONVOLVED}
READERS = {name: flags for name, flags in readers.EVERY_READER.items() if "checkpoint_activations" not in flags}
# The lengths of sources and of targets: without padding and with it, each for the first time and again, then one alone.
BATCHES = [((9, 9), (7, 7)), ((12, 5, 8), (6, 10, 3)), ((6, 6, 6), (11, 11, 11)), ((23, 17), (30, 12)), ((4,), (5,))]
# Of one function; with more, torch goes back to eager mode, and nothing would be compared.
MOST_GRAPHS = 64
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
# With the random numbers of eager mode. With one thread, inductor of torch 2.6 loses gradients of repeated indices, an
# embedding's for example (docs/reliability.md): it is made to write code for any number of threads.
INDUCTOR = {"fallback_random": True}
if torch.__version__.startswith("2.6."):
    INDUCTOR["cpp.dynamic_threads"] = True
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
EVERY_READER = pytest.mark.parametrize("name", READERS)


def batch(sources, targets):
    source, target = sentences(*sources), sentences(*targets, seed=2)
    inputs = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1), "prev_output_tokens": as_prefix(target)}
    return {"net_input": inputs, "target": target, "ntokens": int(target.ne(PAD).sum())}


def logits(model, sample):
    with torch.no_grad():
        return model(**sample["net_input"])[0]


def classification_loss(model, texts):
    return F.cross_entropy(readers.classify(model, texts), torch.arange(len(texts)) % 3)


@contextmanager
def compiled(function, backend):
    """``function`` through graphs of ``backend``, of which there must be some, with random numbers of eager mode."""
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(cache_size_limit=MOST_GRAPHS), inductor_config.patch(INDUCTOR):
        yield torch.compile(function, backend=backend)
    assert counters["stats"]["unique_graphs"] > 1  # of the first shape, and of any


def assert_same_logits(name, backend):
    model = build_model(**{**ONE_LAYER, **MODELS[name]}).eval()
    with compiled(model, backend) as found:
        for sources, targets in BATCHES:
            sample = batch(sources, targets)
            real = sample["target"].ne(PAD)  # at padding some outputs are undefined
            torch.testing.assert_close(logits(found, sample)[real], logits(model, sample)[real], **CLOSE)


def loss_and_gradients(loss_of, model, sample, start):
    with torch.no_grad():  # quantization noise changes the weights in each forward pass
        for name, x in model.state_dict().items():
            x.copy_(start[name])
    model.zero_grad()
    torch.manual_seed(3)  # of random features and random blocks
    loss = loss_of(model, sample)
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same_steps(loss_of, model, samples, backend):
    start = {name: x.clone() for name, x in model.state_dict().items()}
    with compiled(loss_of, backend) as step:
        for sample in samples:
            expected = loss_and_gradients(loss_of, model, sample, start)
            found = loss_and_gradients(step, model, sample, start)
            torch.testing.assert_close(found, expected, **CLOSE)


def assert_same_training_step(name, backend):
    model = build_model(**{**ONE_LAYER, **MODELS[name]}).train()
    task = Namespace(target_dictionary=model.decoder.dictionary)
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)

    def translation_loss(model, sample):
        return criterion(model, sample)[0]

    assert_same_steps(translation_loss, model, [batch(*lengths) for lengths in BATCHES[:4]], backend)


def assert_same_training_step_of_classes(name, backend):
    texts = [sentences(*sources) for sources, _ in BATCHES[:4]]
    assert_same_steps(classification_loss, readers.build(name).train(), texts, backend)


def assert_same_classes(name, backend):
    model = readers.build(name).eval()
    with compiled(readers.classify, backend) as found, torch.no_grad():
        for sources, _ in BATCHES:
            texts = sentences(*sources)
            torch.testing.assert_close(found(model, texts), readers.classify(model, texts), **CLOSE)


@pytest.mark.slow
def test_logits():
    assert_same_logits("luna-tied", "eager")


@pytest.mark.slow
def test_a_training_step():
    assert_same_training_step("mixed-linear", "aot_eager")


@pytest.mark.inductor
@EVERY_MODEL
def test_logits_of_inductor(name):
    assert_same_logits(name, "inductor")


@pytest.mark.inductor
@EVERY_MODEL
def test_a_training_step_of_inductor(name):
    assert_same_training_step(name, "inductor")


@pytest.mark.inductor
@EVERY_READER
def test_classes_of_inductor(name):
    assert_same_classes(name, "inductor")


@pytest.mark.inductor
@EVERY_READER
def test_a_training_step_of_classes_of_inductor(name):
    assert_same_training_step_of_classes(name, "inductor")

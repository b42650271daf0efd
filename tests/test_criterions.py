"""The loss in chunks is fairseq's in value, gradient and report."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics

from fairseq_luna.criterions import NAME
from fairseq_luna.ops import label_smoothed_loss as op
from fairseq_luna.usage_error import UsageError
from support import as_prefix, build_luna, build_model, sentences, translation_task

FAIRSEQS = "label_smoothed_cross_entropy"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def batch():
    target = sentences(9, 4, 6, seed=2)
    inputs = {"src_tokens": sentences(7, 9, 5), "src_lengths": torch.tensor([7, 9, 5])}
    inputs["prev_output_tokens"] = as_prefix(target)
    return {"net_input": inputs, "target": target, "ntokens": int(target.ne(1).sum())}


def criterion(name, **options):
    settings = {"sentence_avg": False, "label_smoothing": 0.1, **options}
    return CRITERION_REGISTRY[name](translation_task(), **settings)


def reported(criterion, output):
    with metrics.aggregate(new_root=True) as meters:
        criterion.reduce_metrics([output, output])
    return meters.get_smoothed_values()


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(op, "CACHE_NUMEL", 150)


@pytest.mark.parametrize("reduce", [True, False], ids=["sum", "each_word"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(
    "options",
    [{}, {"label_smoothing": 0.0}, {"sentence_avg": True}, {"ignore_prefix_size": 2, "report_accuracy": True}],
    ids=lambda options: "-".join(options) or "plain",
)
def test_is_fairseqs_loss(options, dtype, reduce):
    model = build_luna().to(dtype)
    found = {}
    for name in (FAIRSEQS, NAME):
        loss, size, output = criterion(name, **options)(model, batch(), reduce=reduce)
        model.zero_grad()
        (128 * loss).sum().backward()
        if reduce:
            output |= reported(criterion(name, **options), output)
        numbers = {key: torch.as_tensor(value) for key, value in {**output, "size": size}.items()}
        found[name] = loss.detach(), numbers, [p.grad for p in model.parameters() if p.grad is not None]
    (loss, outputs, gradients), (their_loss, their_outputs, their_gradients) = found[NAME], found[FAIRSEQS]
    half = dtype == torch.bfloat16
    torch.testing.assert_close([loss, outputs], [their_loss, their_outputs], rtol=0, atol=0)
    for ours, theirs in zip(gradients, their_gradients, strict=True):
        assert (ours - theirs).abs().max() <= (2e-2 if half else 1e-4) * theirs.abs().max().clamp(min=1)


def test_an_adaptive_softmax_is_refused():
    model = build_model("luna", adaptive_softmax_cutoff="8,16", share_all_embeddings=False)
    with pytest.raises(UsageError, match=f"--criterion {NAME} with --adaptive-softmax-cutoff.*: use adaptive_loss"):
        criterion(NAME)(model, batch())


def test_probabilities_that_are_not_a_softmax_are_refused():
    model = build_luna()
    model.decoder.get_normalized_probs = lambda *_: None
    with pytest.raises(UsageError, match="LunaModel has probabilities of its own: use label_smoothed_cross_entropy"):
        criterion(NAME)(model, batch())
    with pytest.raises(UsageError, match="Namespace has probabilities of its own"):
        criterion(NAME).compute_loss(Namespace(), None, {})

"""A training step that is recorded once and replayed on other batches has the loss and gradients of an eager step.

With --device cuda it is recorded as a CUDA graph.
"""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler

from fairseq_luna.criterions import LabelSmoothedCrossEntropyChunked
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS
from fairseq_luna.models.shared import compiled_layers
from fairseq_luna.recorded_training import FlatGradients, RecordedStep
from fairseq_luna.recorded_training.known_padding import KEY
from training_steps import FAMILIES, FULL, ON_GPU, PADDED, PADS, SAME, batches, criterion_of, eager, model_of, record


def recorded_step(model, criterion, sample, **options):
    gradients = FlatGradients(p for p in model.parameters() if p.requires_grad)
    options = {"optimizer": None, "pads": PADS, "has_padding": sample[KEY], "record": record, **options}
    with torch.device("cpu"):  # as in a training, where no other device is the default
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
                (replayed, report["nll_loss"], found), (loss, log["nll_loss"], gradients), **SAME
            )
        assert not torch.equal(expected[0][0], expected[1][0])


def test_the_loss_scale_of_an_update_is_the_one_of_its_replay():
    model, criterion, samples = model_of("luna"), criterion_of(), batches(PADDED)
    scaler = DynamicLossScaler(init_scale=2.0**10)
    step = recorded_step(model, criterion, samples[0], optimizer=Namespace(scaler=scaler))
    scaler.loss_scale = 2.0**4
    loss, _, gradients = eager(model, criterion, samples[1], scale=2.0**4)
    model.zero_grad()
    replayed, _ = step.replay(samples[1])
    found = {name: p.grad for name, p in model.named_parameters()}
    torch.testing.assert_close((replayed, found), (loss, gradients), **SAME)


def test_gradients_of_several_batches_are_added_and_reports_are_kept():
    model, criterion, samples = model_of("luna"), criterion_of(), batches(PADDED)
    expected = [eager(model, criterion, sample) for sample in samples]
    step = recorded_step(model, criterion, samples[0])
    model.zero_grad()
    found = [step.replay(sample) for sample in samples[:2]]
    # A batch of another shape, computed eagerly within the same update.
    criterion(model, samples[2])[0].backward()
    for (loss, log), (wanted, report, _) in zip(found, expected, strict=False):
        torch.testing.assert_close((loss, log["nll_loss"]), (wanted, report["nll_loss"]), **SAME)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, sum(gradients[name] for _, _, gradients in expected), **SAME)


def test_every_replay_drops_others():
    model, criterion = model_of("luna", dropout=0.5), criterion_of()
    sample, *_ = batches(PADDED)
    step = recorded_step(model, criterion, sample)
    first, second = (step.replay(sample)[0] for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    third, _ = step.replay(sample)
    torch.manual_seed(3)
    torch.testing.assert_close(step.replay(sample)[0], third, **SAME)


def test_a_step_that_asks_the_device_for_a_number_is_not_recorded():
    class Asking(LabelSmoothedCrossEntropyCriterion):
        def forward(self, model, sample, reduce=True):
            loss, size, log = super().forward(model, sample, reduce)
            return (loss if loss.item() > 0 else -loss), size, log

    sample, *_ = batches(PADDED)
    with pytest.raises(RuntimeError, match="synchronizing" if ON_GPU else "asks the device"):
        recorded_step(model_of("luna"), criterion_of(Asking), sample)


@pytest.mark.slow
def test_compiled_layers_are_recorded(monkeypatch):
    monkeypatch.setattr(compiled_layers, "BACKEND", "aot_eager")
    model, criterion, samples = model_of("softmax"), criterion_of(), batches(PADDED)
    model.compile_layers_in_training()
    model.train()
    loss, _, gradients = eager(model, criterion, samples[1])
    step = recorded_step(model, criterion, samples[0])
    model.zero_grad()
    replayed, _ = step.replay(samples[1])
    torch.testing.assert_close(replayed, loss, **SAME)
    torch.testing.assert_close({name: p.grad for name, p in model.named_parameters()}, gradients, **SAME)

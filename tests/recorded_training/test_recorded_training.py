"""Which steps of a training are replayed, and what happens where that is not possible."""

import logging
from argparse import Namespace

import pytest
import torch
from fairseq.modules import FairseqDropout
from fairseq.nan_detector import NanDetector
from fairseq.optim import FairseqOptimizer
from fairseq.tasks import FairseqTask

import operator_tape
from fairseq_luna.recorded_training import RecordedTraining, recorded_training
from fairseq_luna.recorded_training.known_padding import KEY
from training_steps import FULL, PADDED, PADS, batch, batches, criterion_of, eager, model_of


class Run:
    """Steps of one model, each counted by how it was computed."""

    def __init__(self, record=operator_tape.record, **options):
        of_run = {name: options.pop(name) for name in ("most_recorded",) if name in options}
        self.model = model_of(options.pop("family", "luna"), **options)
        self.criterion, self.optimizer = criterion_of(), FairseqOptimizer(None)
        self.eager_steps = 0
        self.training = RecordedTraining(self.eager_step, pads=PADS, record=record, **of_run)

    def eager_step(self, *args, **options):
        self.eager_steps += 1
        return FairseqTask.train_step(Namespace(), *args, **options)

    def step(self, sample, update=0, **options):
        """The result, and whether the step was computed eagerly."""
        before = self.eager_steps
        self.model.zero_grad()
        given = {"sample": sample, "model": self.model, "criterion": self.criterion, "optimizer": self.optimizer}
        found = self.training.train_step(**given, update_num=update, **options)
        return found, self.eager_steps > before

    def modes(self, samples, **options):
        return ["eager" if self.step(sample, **options)[1] else "replayed" for sample in samples]


def test_a_shape_is_recorded_when_it_comes_again():
    padded, full = batches(PADDED), batches(FULL)
    run = Run()
    assert run.modes([padded[0], full[0], padded[1], padded[2], full[1]]) == ["eager"] * 2 + ["replayed"] * 3
    assert len(run.training.steps) == 2  # with the same shapes, with and without padding


def test_a_replay_returns_what_fairseqs_step_returns():
    run, samples = Run(), batches(PADDED)
    run.modes(samples)
    for sample in samples:
        (loss, size, log), was_eager = run.step(sample)
        found = {name: p.grad.clone() for name, p in run.model.named_parameters()}
        expected, report, gradients = eager(run.model, run.criterion, sample)
        assert not was_eager
        assert torch.equal(loss, expected) and size == sample["ntokens"]
        assert log.keys() == report.keys() and all(log[name] == report[name] for name in log)
        assert all(torch.equal(found[name], gradients[name]) for name in gradients)


def test_further_shapes_are_computed_eagerly():
    run = Run(most_recorded=1)
    padded, full = batches(PADDED), batches(FULL)
    assert run.modes([padded[0], padded[1], full[0], full[1], full[2], padded[2]]).count("eager") == 4
    assert len(run.training.steps) == 1


def test_batches_that_do_not_count_or_are_observed_are_computed_eagerly():
    run, samples = Run(), batches(PADDED)
    assert run.modes(samples) == ["eager", "replayed", "replayed"]
    assert run.modes(samples[:1], ignore_grad=True) == ["eager"]
    without = {name: x for name, x in samples[0].items() if name != KEY}
    assert run.modes([without]) == ["eager"]
    with NanDetector(run.model, backward=False):
        assert run.modes(samples[:1]) == ["eager"]
    assert run.modes(samples[:1]) == ["replayed"]


def cannot_record(function, reset):
    raise RuntimeError("operation not permitted when stream is capturing\nmore")


def records_nothing(function, reset):
    function()
    reset()
    return lambda: None


def records_constants(function, reset):
    """Replays the batch of the recording."""
    tape = operator_tape.OperatorTape()
    with tape:
        function()
    reset()
    copies = [x.clone() for x in recorded_inputs(function)]

    def replay():
        for x, copy in zip(recorded_inputs(function), copies, strict=True):
            x.copy_(copy)
        tape.replay()

    return replay


def recorded_inputs(compute):
    return compute.__self__.buffers.values()


@pytest.mark.parametrize(
    ("record", "named"),
    [
        (cannot_record, "not permitted when stream is capturing"),
        (records_nothing, "differ"),
        (records_constants, "differ"),
    ],
)
def test_what_cannot_be_recorded_is_computed_eagerly_with_one_warning(record, named, caplog):
    run, samples = Run(record=record), batches(PADDED)
    state = torch.get_rng_state()
    assert run.modes([*samples, *samples]) == ["eager"] * 6
    assert torch.equal(torch.get_rng_state(), state)
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert named in warning.message and "\n" not in warning.message
    (loss, _, _), _ = run.step(samples[0])
    assert torch.equal(loss.detach(), eager(run.model, run.criterion, samples[0])[0])


@pytest.mark.parametrize("record", [cannot_record, records_nothing, operator_tape.record])
def test_recording_leaves_the_sums_of_routing_attention_as_they_were(record):
    """They would count the batches of the recording, and the centroids would move by them."""
    samples = [*batches(PADDED), *batches(FULL)]
    run, expected = Run(record=record, family="routing"), Run(family="routing")
    expected.training.failed = True  # every step is eager
    for number, sample in enumerate([*samples, *samples]):
        for each in (run, expected):
            each.step(sample, update=number // 2)
    assert run.training.failed == (record is not operator_tape.record)
    assert len(run.training.steps) == (0 if run.training.failed else 2)
    buffers = dict(expected.model.named_buffers())
    assert any("update_sums" in name or "centroids" in name for name in buffers)
    for name, x in run.model.named_buffers():
        torch.testing.assert_close(x, buffers[name], msg=name)


def test_the_first_steps_are_compared_without_dropout():
    rates = []

    def record(function, reset):
        rates.append({x.p for x in run.model.modules() if isinstance(x, FairseqDropout)})
        return operator_tape.record(function, reset)

    run = Run(record=record, dropout=0.3)
    shapes = [PADDED[0], FULL[0], ((5,), (4,)), ((4, 4), (5, 5)), ((3,), (3,))]
    samples = [batch(lengths, seed) for seed, lengths in enumerate(shapes)]
    state = torch.get_rng_state()
    run.modes(samples)
    with_dropout = torch.get_rng_state()
    assert not torch.equal(with_dropout, state)
    assert run.modes(samples) == ["replayed"] * 5
    assert recorded_training.COMPARED == 3
    assert len(rates) == 2 * 3 + 2
    assert [max(some) > 0 for some in rates] == [False, True] * 3 + [True] * 2


def test_an_overflow_compares_a_later_step():
    run, samples = Run(), batches(PADDED)
    run.optimizer.scaler = Namespace(scale=lambda x: x * torch.inf)
    run.modes(samples[:2])
    assert run.training.compared == 0
    run.optimizer.scaler = Namespace(scale=lambda x: x * 4)
    full = batches(FULL)
    assert run.modes(full[:2]) == ["eager", "replayed"]
    assert run.training.compared == 1

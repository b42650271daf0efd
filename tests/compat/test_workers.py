"""Processes that load data draw the masks, noise and crops of their epoch, in a first run and in a resumed one."""

import copy
import functools
import gc
import multiprocessing

import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_luna.models  # noqa: F401 (registers the architectures)
from commands import MASKED_LM, READER_SIZES, train
from reader_data import language_model_data
from small_training import differing, outcome

WORDS = ("--arch=luna_roberta_tiny", *MASKED_LM)
# Of fairseq 0.12.2's models few go with this task: it and they define the same flag.
DENOISING = (
    *("--arch=lstm", "--task=denoising", "--tokens-per-sample=30", "--sample-break-mode=eos"),
    *("--replace-length=1", "--insert=0.2", "--mask=0.3", "--mask-random=0.5", "--rotate=0.5", "--permute-sentences=1"),
)
TASKS = {
    "masks": WORDS,
    "crops": (*WORDS, "--tokens-per-sample=8", "--sample-break-mode=none", "--shorten-method=random_crop"),
    "noise": (*DENOISING, "--mask-length=subword"),
    "noise-of-spans": (*DENOISING, "--mask-length=span-poisson"),
}
VIRTUAL = (
    *("--arch=luna_tiny", "--task=translation_multi_simple_epoch", "--langs=a,b", "--lang-pairs=a-b,b-a"),
    *("--virtual-epoch-size=40", "--sampling-method=temperature", "--sampling-temperature=2"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return language_model_data(tmp_path_factory.mktemp("texts"))


@pytest.fixture(autouse=True)
def forgotten_workers_are_terminated_soon(monkeypatch):
    """A loader in a reference cycle closes the queue of its workers before it can tell them to end.

    Then torch waits 5 seconds for each of them to end, and terminates it.
    """
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)
    yield
    gc.collect()


@functools.cache
def task_config(data, flags):
    args = options.parse_args_and_arch(options.get_training_parser(), [data, *flags])
    return convert_namespace_to_omegaconf(args).task


def epochs(data, flags, first=1, last=3, **how):
    """The training's source batches of epochs ``first`` to ``last`` of a run that begins with the first."""
    task = tasks.setup_task(copy.deepcopy(task_config(data, flags)))
    task.load_dataset("train", epoch=first)
    read = {}
    for epoch in range(first, last + 1):
        batches = task.get_batch_iterator(task.dataset("train"), max_sentences=4, epoch=epoch, **how)
        read[epoch] = [batch["net_input"]["src_tokens"].tolist() for batch in batches.next_epoch_itr(shuffle=False)]
    return read


@pytest.mark.parametrize("how", [(1, 2), (0, 2)], ids=["buffered-worker", "thread"])
@pytest.mark.parametrize("flags", TASKS.values(), ids=TASKS)
def test_each_epoch_has_its_own_draws_wherever_they_are_made(data, flags, how):
    workers, buffered = how
    expected = epochs(data, flags)
    assert all(expected[one] != expected[other] for one, other in [(1, 2), (2, 3), (1, 3)])
    torch.rand(7)  # other draws do not count
    assert epochs(data, flags, num_workers=workers, data_buffer_size=buffered) == expected
    assert epochs(data, flags, first=3, num_workers=2 * workers, data_buffer_size=buffered)[3] == expected[3]


def test_virtual_epochs_are_those_of_the_first_run(tiny_data):
    """Four share the sentences of both pairs: the fifth begins again."""
    expected = epochs(tiny_data, VIRTUAL, last=6)
    for first, workers in ((2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (5, 1)):
        resumed = epochs(tiny_data, VIRTUAL, first=first, last=6, num_workers=workers)
        assert resumed == {epoch: expected[epoch] for epoch in resumed}


def test_the_workers_of_earlier_epochs_end(data):
    before = multiprocessing.active_children()
    epochs(data, WORDS, last=6, num_workers=2)
    assert len(multiprocessing.active_children()) - len(before) <= 4  # of the last epoch and the one before


NOISE = (*TASKS["noise-of-spans"], "--encoder-embed-dim=8", "--decoder-embed-dim=8", "--decoder-out-embed-dim=8")
# An epoch has three updates: the run is stopped at the end of one, and within one.
TRAININGS = {"masks": ((*WORDS, *READER_SIZES), "--max-epoch=2"), "noise": (NOISE, "--max-update=4")}


@pytest.mark.parametrize(("flags", "stop"), TRAININGS.values(), ids=TRAININGS)
def test_resuming_is_bit_identical(data, tmp_path, flags, stop):
    flags = (*flags, "--optimizer=adam", "--lr=0.01", "--num-workers=1", "--data-buffer-size=10")
    whole = train(data, tmp_path / "whole", *flags, "--max-epoch=3")
    train(data, tmp_path / "stopped", *flags, stop)
    resumed = train(data, tmp_path / "stopped", *flags, "--max-epoch=3")
    assert set(differing(outcome(resumed), outcome(whole))) <= {"/best"}  # the stop validates once more

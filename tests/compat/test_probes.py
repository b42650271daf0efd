"""Each probe finds the fault in the installed fairseq, and none in a fixed one."""

import logging
import random
import subprocess
import sys
from argparse import Namespace
from importlib import metadata
from threading import Thread
from types import SimpleNamespace

import numpy
import pytest
import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.tasks import FairseqTask

from fairseq_luna import compat
from fairseq_luna.compat import PATCHES, encoder_fast_path, end_of_training

LATER_FAIRSEQ = "fairseq-fixed" in {dist.metadata["Name"] for dist in metadata.distributions()}
ONLY_LATER = {"last-batch", "resume", "diverse-beams"}
ONLY_EARLIER = {"encoder-fast-path"}


def test_on_the_installed_fairseq():
    """In a process in which nothing has been patched yet."""
    probing = "from fairseq_luna import compat; print(*(name for name, p in compat.PATCHES.items() if p.is_needed()))"
    ended = subprocess.run([sys.executable, "-c", probing], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert set(ended.stdout.split()) == PATCHES.keys() - (ONLY_EARLIER if LATER_FAIRSEQ else ONLY_LATER)


def test_only_needed_patches_are_applied_and_only_after_all_probes(monkeypatch):
    calls = []

    def example(name, needed):
        return SimpleNamespace(
            is_needed=lambda: calls.append(f"probe {name}") or needed,
            apply=lambda: calls.append(name),
            summary="summary",
        )

    examples = {"a": True, "b": False, "c": True}
    monkeypatch.setattr(compat, "PATCHES", {name: example(name, needed) for name, needed in examples.items()})
    results = compat.apply_patches.__wrapped__()
    assert results == (("a", True, "summary"), ("b", False, "summary"), ("c", True, "summary"))
    assert calls == ["probe a", "probe b", "probe c", "a", "c"]


class _Iterator:
    """A buffered iterator whose thread ends at once."""

    def __init__(self, size, iterable):
        self._consumer = Thread(target=lambda: None)

    def __next__(self):
        self._consumer.start()
        self._consumer.join()


def _joins(cfg, force_distributed=False):
    if cfg.distributed_init_method is not None or cfg.tpu:
        return
    cfg.distributed_init_method, cfg.distributed_backend = "env://", "gloo"


def _same_batches(task, dataset, **_):
    return SimpleNamespace(frozen_batches=numpy.arange(4), batch_sampler=[])


def _wraps(cfg, model, group, device):
    return distributed_fairseq_model.DistributedDataParallel(device_ids=None)


# The functions of a fixed fairseq, or torch, in the place of each faulty one whose probe does not see the patch.
FIXED = {
    "broadcast": (torch, "load", lambda file: []),
    "torchrun": (distributed_utils, "infer_init_method", _joins),
    "cpu-ddp": (distributed_fairseq_model, "DistributedFairseqModel", _wraps),
    "bf16": (options, "parse_args_and_arch", lambda *_: Namespace(tpu=False)),
    "resume": (FairseqTask, "get_batch_iterator", _same_batches),
    "finished": (end_of_training, "_fairseq_train", lambda: SimpleNamespace(train=lambda *_: ([None], True))),
    "encoder-fast-path": (encoder_fast_path.TransformerEncoderLayerBase, "forward", lambda layer, x, mask: x),
    "exit": (end_of_training, "BufferedIterator", _Iterator),
}


@pytest.mark.parametrize("name", PATCHES)
def test_on_a_fixed_one(name, monkeypatch):
    compat.apply_patches()
    if name in FIXED:
        monkeypatch.setattr(*FIXED[name])
    assert not PATCHES[name].is_needed()


@pytest.mark.parametrize("name", PATCHES)
def test_draws_no_random_numbers(name):
    def states():
        return torch.get_rng_state().tolist(), repr(numpy.random.get_state()), random.getstate()

    before = states()
    PATCHES[name].is_needed()
    assert states() == before


def test_the_probe_of_broadcast_asks_for_fairseqs_own_class():
    with torch.serialization.safe_globals([distributed_utils._TensorPlaceholder]):
        assert not PATCHES["broadcast"].is_needed()
    assert PATCHES["broadcast"].is_needed()


def test_the_probe_of_finished_leaves_logging_and_meters_unchanged():
    from fairseq.logging import metrics

    before = list(metrics.get_active_aggregators())
    module = sys.modules.get("fairseq_cli.train")
    level = logging.root.level, list(logging.root.handlers)
    assert PATCHES["finished"].is_needed()
    assert (logging.root.level, logging.root.handlers) == level
    assert list(metrics.get_active_aggregators()) == before
    assert sys.modules.get("fairseq_cli.train") is module

"""Every way of loading the plugin activates it. Each test runs in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import APOLLO, FAMILIES, USER_DIR, arguments


def python(code, *arguments, **options):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


LOADED = """
import sys
from argparse import Namespace
from fairseq import models, optim, utils

utils.import_user_module(Namespace(user_dir=sys.argv[1]))
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq_luna import compat
assert "luna" in models.ARCH_MODEL_REGISTRY and "apollo" in optim.OPTIMIZER_REGISTRY
assert "milestone" in LR_SCHEDULER_REGISTRY and compat.apply_patches.cache_info().currsize == 1
"""
PLACES = {"path": (USER_DIR, "/"), "name": ("fairseq_luna", Path(USER_DIR).parent)}


@pytest.mark.parametrize(("user_dir", "folder"), PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("before", [False, True], ids=["first", "imported-before"])
def test_user_dir_by_its_path_from_anywhere_and_by_its_name_in_a_checkout(user_dir, folder, before):
    environment = {name: value for name, value in os.environ.items() if before or name != "PYTHONPATH"}
    code = f"import fairseq_luna.models{LOADED}" if before else LOADED
    ended = python(code, user_dir, cwd=folder, env=environment)
    assert ended.returncode == 0, ended.stderr


# No function of torch.cuda that creates a context may be called, though there seems to be a GPU.
NO_CUDA = """
import os, torch

def initialized(*_):
    os.write(2, b"CUDA was initialized")
    os._exit(3)

import fairseq.trainer
torch.cuda.is_available = lambda: True
for name in ("current_device", "set_device", "init", "_lazy_init", "current_stream", "synchronize"):
    setattr(torch.cuda, name, initialized)
import fairseq_luna.models
"""


def test_activation_does_not_initialise_cuda():
    ended = python(NO_CUDA)
    assert ended.returncode == 0, ended.stderr


# The main module of a spawned worker is imported again, so everything is under the guard.
TRAINING_WITH_WORKERS = """
import multiprocessing
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    from fairseq_cli.train import cli_main
    cli_main()
"""


@pytest.mark.slow
def test_training_with_spawned_data_loader_processes(tiny_data, tmp_path):
    """tests/compat/test_workers.py has forked ones."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING_WITH_WORKERS)
    flags = (*FAMILIES["luna"], *APOLLO, "--num-workers=1", "--max-update=2", "--disable-validation")
    command = [sys.executable, script, *arguments(tiny_data, tmp_path, *flags)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "checkpoint_last.pt").exists()

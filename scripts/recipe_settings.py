"""What fairseq's own commands make of a recipe: the whole config, just before it would train."""

import contextlib
import logging
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fairseq import utils
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import hydra_train, train
from omegaconf import DictConfig

USER_DIR = Path(__file__).resolve().parent.parent / "fairseq_luna"
# As --user-dir does. Its mends wrap what is replaced below, so they must come first.
utils.import_user_module(Namespace(user_dir=str(USER_DIR)))


class RecipeRefused(Exception):
    """A script or a command of fairseq would not take a recipe's settings; the message says which and why."""


def script_command(script: Path, environment: Mapping[str, str], flags: Sequence[str] = ()) -> list[str]:
    """The command that ``script`` would run, as ``DRY_RUN=1`` has it print it.

    Args:
        script: one that ends in ``fairseq-train``.
        environment: what is set for it, such as DATA, over this process's own.
        flags: appended to its command line.

    Raises:
        RecipeRefused: with the script's own message.
    """
    inherited = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    result = subprocess.run(
        ["bash", str(script), *flags],
        env={**inherited, "DRY_RUN": "1", **environment},
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise RecipeRefused(result.stderr.strip() or f"{script} ended with status {result.returncode}")
    return shlex.split(result.stdout)


def command_settings(command: Sequence[str]) -> DictConfig:
    """What fairseq-train parses ``command`` into: ``PYTHON -m fairseq_cli.train DATA FLAGS...``."""
    _, module, name, *arguments = command
    if (module, name) != ("-m", "fairseq_cli.train"):
        raise RecipeRefused(f"a recipe must end in python -m fairseq_cli.train, not {shlex.join(command[:3])}")
    return _settings("fairseq-train", train.cli_main, arguments)


def yaml_settings(config: Path, overrides: Sequence[str] = ()) -> DictConfig:
    """What fairseq-hydra-train composes of the YAML file ``config`` and ``overrides``."""
    arguments = [f"--config-dir={config.parent.resolve()}", f"--config-name={config.stem}", *overrides]
    return _settings("fairseq-hydra-train", hydra_train.cli_main, arguments)


def _settings(name: str, cli_main: Any, arguments: Sequence[str]) -> DictConfig:
    # Both commands hand what they have parsed to this one function, with the one that trains.
    taken: list[DictConfig] = []
    try:
        with (
            _logging_as_it_was(),
            patch.object(distributed_utils, "call_main", lambda cfg, main, **more: taken.append(cfg)),
            patch.object(sys, "argv", [name, *arguments]),
            contextlib.redirect_stdout(sys.stderr),
        ):
            cli_main()
    except SystemExit as refusal:
        raise RecipeRefused(f"{name} would not take: {shlex.join(arguments)}") from refusal
    return taken[0]


@contextlib.contextmanager
def _logging_as_it_was() -> Iterator[None]:
    """Take back what hydra does to the root logger."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)

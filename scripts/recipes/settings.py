"""The config that fairseq's own commands make of a recipe, taken just before they would train."""

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

from shared.command import CommandError
from shared.steps import USER_DIR

# As --user-dir does. Its patches wrap call_main, which is replaced below, so they come first.
utils.import_user_module(Namespace(user_dir=str(USER_DIR)))


def script_command(script: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> list[str]:
    """The command that a training script prints with ``DRY_RUN=1``.

    Args:
        script: one that ends in ``python -m fairseq_cli.train``.
        environment: variables such as DATA, set over this process's own.
        arguments: of the script.

    Raises:
        CommandError: the script refuses; its own message.
    """
    inherited = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    result = subprocess.run(
        ["bash", str(script), *arguments],
        env={**inherited, "PYTHON": sys.executable, "DRY_RUN": "1", **environment},
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise CommandError(result.stderr.strip() or f"{script} ended with status {result.returncode}")
    return shlex.split(result.stdout)


def command_settings(command: Sequence[str]) -> DictConfig:
    """The config that fairseq-train parses from ``PYTHON -m fairseq_cli.train DATA FLAGS...``."""
    return _settings(train.cli_main, command[2:])


def yaml_settings(config: Path, overrides: Sequence[str] = ()) -> DictConfig:
    """The config that fairseq-hydra-train composes from the YAML file ``config`` and ``overrides``."""
    arguments = [f"--config-dir={config.parent.resolve()}", f"--config-name={config.stem}", *overrides]
    return _settings(hydra_train.cli_main, ["fairseq-hydra-train", *arguments])


def _settings(cli_main: Any, argv: Sequence[str]) -> DictConfig:
    # Both commands pass the parsed config to this one function.
    taken: list[DictConfig] = []
    try:
        with (
            _logging_restored(),
            patch.object(distributed_utils, "call_main", lambda cfg, main, **more: taken.append(cfg)),
            patch.object(sys, "argv", list(argv)),
            contextlib.redirect_stdout(sys.stderr),
        ):
            cli_main()
    except SystemExit as refusal:
        raise CommandError(f"fairseq refused: {shlex.join(argv)}") from refusal
    return taken[0]


@contextlib.contextmanager
def _logging_restored() -> Iterator[None]:
    """Undo what hydra does to the root logger."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)

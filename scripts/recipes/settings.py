"""The config of a recipe, taken from fairseq's own commands just before they would train."""

import contextlib
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fairseq import utils
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train
from omegaconf import DictConfig

from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.steps import USER_DIR

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
    return parsed(train.cli_main, command[2:])


def parsed(cli_main: Any, argv: Sequence[str]) -> DictConfig:
    """The config that a training command of fairseq's parses from ``argv``."""
    # All of them pass it to this one function.
    taken: list[DictConfig] = []
    try:
        with (
            patch.object(distributed_utils, "call_main", lambda cfg, main, **more: taken.append(cfg)),
            patch.object(sys, "argv", list(argv)),
            contextlib.redirect_stdout(sys.stderr),
        ):
            cli_main()
    except SystemExit as refusal:
        raise CommandError(f"fairseq refused: {shlex.join(argv)}") from refusal
    return taken[0]

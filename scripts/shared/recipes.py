"""Commands that train by the recipes of examples/config."""

import re
from pathlib import Path

from fairseq_luna.commands.shell_commands import USER_DIR, shell, shortest


def recipe(name: str, data: Path, *overrides: str) -> str:
    """A command to paste that trains on ``data`` by examples/config/``name``.yaml, with checkpoints beside the data."""
    config = USER_DIR.parent / "examples" / "config"
    paths = {"common.user_dir": USER_DIR, "task.data": data, "checkpoint.save_dir": data.parent / "checkpoints"}
    settings = [f"{key}={quoted(shortest(path))}" for key, path in paths.items()]
    return shell("fairseq-hydra-train", "--config-dir", config, "--config-name", name, *overrides, *settings)


def quoted(path: str) -> str:
    """A value of hydra's command line, which reads some characters, such as spaces and umlauts, only in quotes."""
    if re.fullmatch(r"[\w./-]+", path, re.ASCII):
        return path
    return '"{}"'.format(path.replace('"', '\\"'))

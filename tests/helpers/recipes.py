"""Recipes of examples/config as fairseq's own commands read and build them, without training."""

import contextlib
import dataclasses
import logging
import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from fairseq import optim, tasks
from fairseq.dataclass.initialize import add_defaults
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import lr_scheduler
from fairseq_cli import hydra_train
from omegaconf import DictConfig, OmegaConf
from torch import nn

import fairseq_luna.models  # noqa: F401 (its patches wrap call_main, which is replaced below)
from fairseq_luna.commands.converting.parameters import placeholder_dictionary
from fairseq_luna.commands.shell_commands import USER_DIR
from harness.parsing import parse, without_copies_of_sources
from shared.recipes import quoted

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "examples" / "config"
# fairseq 0.12.2's encoder layers have untrained copies of their weights for a fast path.
_FAST_PATH_COPY = re.compile(r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")
# The sections of fairseq's config that determine a training, without the model's.
_DECIDING = ("common", "task", "criterion", "dataset", "optimization", "distributed_training", "checkpoint")
_DECIDING += ("optimizer", "lr_scheduler", "ema", "bmuf")


def composed(name: str, data: Path, *overrides: str) -> DictConfig:
    """The config that fairseq-hydra-train composes."""
    places = (f"{key}={quoted(str(path))}" for key, path in (("common.user_dir", USER_DIR), ("task.data", data)))
    arguments = (f"--config-dir={CONFIG}", f"--config-name={name}", *places)
    return parsed(*arguments, *overrides)


def of_flags(data: Path, *flags: str) -> DictConfig:
    """The config that fairseq-train parses."""
    return parse([str(data), f"--user-dir={USER_DIR}", *flags])


def parsed(*arguments: str) -> DictConfig:
    """The config that fairseq-hydra-train has for its arguments."""
    # fairseq passes it to this one function.
    taken: list[DictConfig] = []
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with (
        patch.object(distributed_utils, "call_main", lambda cfg, main, **more: taken.append(cfg)),
        patch.object(sys, "argv", ["fairseq-hydra-train", *arguments]),
        contextlib.redirect_stdout(sys.stderr),
        without_copies_of_sources(),
    ):
        try:
            hydra_train.cli_main()
        finally:  # hydra configures the root logger
            root.handlers[:] = handlers
            root.setLevel(level)
    return taken[0]


def write_dictionaries(folder: Path, words: int, *names: str) -> None:
    """Write the dictionaries of a data-bin, with ``words`` entries including fairseq's special symbols."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        placeholder_dictionary(words).save(str(folder / name))


def build(cfg: DictConfig) -> tuple[nn.Module, Any]:
    """The model and the schedule; the model of a translation without memory for its weights."""
    add_defaults(cfg)
    task = tasks.setup_task(cfg.task)
    # fairseq draws RoBERTa's weights on the CPU.
    with torch.device("meta" if cfg.task._name == "translation" else "cpu"):
        model = task.build_model(cfg.model)
    task.build_criterion(cfg.criterion)
    optimizer = optim.build_optimizer(cfg.optimizer, list(model.parameters()))
    return model, lr_scheduler.build_lr_scheduler(cfg.lr_scheduler, optimizer)


def count_parameters(model: nn.Module) -> int:
    """The number of trained parameters; shared ones count once."""
    return sum(p.numel() for name, p in model.named_parameters() if not _FAST_PATH_COPY.search(name))


def settings(cfg: DictConfig, model: Any) -> dict[str, Any]:
    """All settings that determine a training, as ``{"section.setting": value}``, independent of the command.

    The model's settings are those of the built model, because for fairseq's own models fairseq-train's section is the
    whole command line. Names of architectures are left out: YAML has their sizes instead.
    """
    built_from = getattr(model, "cfg", None) or model.args  # RoBERTa's
    sections = {name: OmegaConf.to_container(cfg[name]) for name in _DECIDING if cfg.get(name) is not None}
    # The dataclass that a model of this plugin was registered with; fairseq's transformer has none.
    parts = filter(None, (type(built_from), getattr(type(model), "__dataclass", None)))
    known = {field.name for part in parts for field in dataclasses.fields(part)}
    sections["model"] = {name: _plain(value) for name, value in vars(built_from).items() if name in known}
    found = dict(_flat(sections))
    return {name: value for name, value in found.items() if not re.fullmatch(r"model\.(.*\.)?_name", name)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {name: _plain(part) for name, part in vars(value).items()}
    return str(value) if isinstance(value, Enum) else value


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else key)
    else:
        yield name, value

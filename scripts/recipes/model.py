"""A recipe's model, optimizer and schedule, built as by fairseq-train; for translation without memory for weights."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import optim, tasks, utils
from fairseq.dataclass.initialize import add_defaults
from fairseq.optim import lr_scheduler
from omegaconf import DictConfig, OmegaConf
from torch import nn

from fairseq_luna.commands.dictionaries import joint_dictionary

# fairseq 0.12.2's encoder layers have untrained copies of their weights for a fast path.
_FAST_PATH_COPY = re.compile(r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")
# The sections of fairseq's config that determine a training, without the model's.
_DECIDING = ("common", "task", "criterion", "dataset", "optimization", "distributed_training", "checkpoint")
_DECIDING += ("optimizer", "lr_scheduler", "ema", "bmuf")


class Built(NamedTuple):
    model: nn.Module
    optimizer: Any
    schedule: Any


def write_dictionaries(folder: Path, words: int, names: Iterable[str]) -> None:
    """Write the dictionaries of a data-bin, with ``words`` entries including fairseq's special symbols."""
    dictionary = joint_dictionary(words)
    for name in names:
        dictionary.save(str(folder / name))


def build(cfg: DictConfig) -> Built:
    """Build what ``cfg`` describes; its ``task.data`` needs only dictionaries.

    Raises:
        UsageError: the model, the optimizer or the schedule refuses a setting.
    """
    utils.import_user_module(cfg.common)
    add_defaults(cfg)
    task = tasks.setup_task(cfg.task)
    # fairseq draws RoBERTa's weights on the CPU.
    with torch.device("meta" if cfg.task._name == "translation" else "cpu"):
        model = task.build_model(cfg.model)
    optimizer = optim.build_optimizer(cfg.optimizer, list(model.parameters()))
    return Built(model, optimizer, lr_scheduler.build_lr_scheduler(cfg.lr_scheduler, optimizer))


def count_parameters(model: nn.Module) -> int:
    """The number of trained parameters; shared ones count once."""
    return sum(p.numel() for name, p in model.named_parameters() if not _FAST_PATH_COPY.search(name))


def plain_settings(cfg: DictConfig, model: nn.Module) -> dict[str, Any]:
    """All settings that determine a training, as ``{"section.setting": value}``, independent of the command.

    The model's settings are those of ``model``, because for fairseq's own models fairseq-train's section is the whole
    command line. Names of architectures are left out: YAML has their sizes instead.
    """
    built_from = getattr(model, "cfg", None) or model.args  # RoBERTa's
    sections = {name: OmegaConf.to_container(cfg[name]) for name in _DECIDING if cfg.get(name) is not None}
    known = {
        field.name for part in (type(built_from), _flat_config(model)) if part for field in dataclasses.fields(part)
    }
    sections["model"] = {name: _plain(value) for name, value in vars(built_from).items() if name in known}
    settings = dict(_flat(sections))
    return {name: value for name, value in settings.items() if not re.fullmatch(r"model\.(.*\.)?_name", name)}


def _flat_config(model: nn.Module) -> type | None:
    """The dataclass that a model of this plugin was registered with; fairseq's transformer has none."""
    return getattr(type(model), "__dataclass", None)


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

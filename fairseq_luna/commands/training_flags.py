"""The flags of fairseq-train that give a training the settings of a checkpoint."""

import json
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass import configs
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import TASK_REGISTRY

from ..usage_error import UsageError
from .command_line import Parser

Settings = Mapping[str, Any]

# What the data and the loss need, of the groups of fairseq's config that neither a task nor a criterion adds.
GROUPS = {
    "dataset": (
        configs.DatasetConfig,
        (
            *("dataset_impl", "train_subset", "valid_subset", "combine_valid_subsets", "ignore_unused_valid_subsets"),
            *("disable_validation", "skip_invalid_size_inputs_valid_test", "required_batch_size_multiple"),
            *("required_seq_len_multiple", "max_tokens", "batch_size", "max_tokens_valid"),
            *("batch_size_valid", "max_valid_steps", "fixed_validation_seed", "grouped_shuffling"),
        ),
    ),
    "optimization": (configs.OptimizationConfig, ("sentence_avg", "skip_remainder_batch", "update_freq", "clip_norm")),
    "distributed_training": (configs.DistributedTrainingConfig, ("ddp_backend", "find_unused_parameters")),
    "checkpoint": (configs.CheckpointConfig, ("best_checkpoint_metric", "maximize_best_checkpoint_metric")),
}
# Settings that are another's if they are not given.
FOLLOWED = {"max_tokens_valid": "max_tokens", "batch_size_valid": "batch_size"}


def of_task(settings: Any, *, leave_out: Collection[str] = ()) -> list[str]:
    """The words for the ``settings`` of a task, of a checkpoint's config; without its name."""
    return _of_part(TASK_REGISTRY, settings, leave_out)


def of_criterion(settings: Any) -> list[str]:
    """The words for the ``settings`` of a criterion, of a checkpoint's config; without its name."""
    return _of_part(CRITERION_REGISTRY, settings, ())


def of_groups(cfg: Settings) -> list[str]:
    """The words for the settings of :data:`GROUPS` in the checkpoint's config ``cfg``."""
    words: list[str] = []
    for group, (kind, names) in GROUPS.items():
        settings = plain(cfg.get(group))
        given = {name: settings.get(name) for name in names}
        followed = {name for name, other in FOLLOWED.items() if given.get(name) == given.get(other)}
        words += flags_of(partial(gen_parser_from_dataclass, dataclass_instance=kind()), given, leave_out=followed)
    return words


def plain(settings: Any) -> dict[str, Any]:
    """A part of a checkpoint's config: of a mapping, of a namespace with the whole command line, or of None."""
    return dict(vars(settings) if isinstance(settings, Namespace) else settings or {})


def flags_of(
    add_flags: Callable[[ArgumentParser], object], settings: Settings, *, leave_out: Collection[str] = ()
) -> list[str]:
    """The words that give ``settings`` where they are not the defaults.

    Args:
        add_flags: adds the flags to a parser.
        settings: by the names of the parser's results; those of nested configs too, and others, which are left out.
        leave_out: names of settings that are given otherwise.
    """
    parser = Parser(None, allow_abbrev=False, add_help=False)
    add_flags(parser)
    for action in parser._actions:
        action.required = False
    actions = {action.dest: action for action in parser._actions if action.option_strings}
    try:
        defaults = vars(parser.parse_args([]))
    except UsageError:  # a default of a task that its own flag refuses
        defaults = {name: action.default for name, action in actions.items()}
    words: list[str] = []
    for name, value in _flat(settings, actions):
        if name in actions and name not in leave_out and value is not None and value != defaults.get(name):
            words += _words(parser, actions[name], value)
    return words


def _of_part(registry: Settings, settings: Any, leave_out: Collection[str]) -> list[str]:
    settings = plain(settings)
    kind = registry.get(settings.get("_name"))
    return flags_of(kind.add_args, settings, leave_out=leave_out) if kind else []


def _flat(settings: Settings, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if name not in names and isinstance(value, Mapping):
            yield from _flat(value, names)
        else:
            yield name, value


def _words(parser: ArgumentParser, action: Action, value: Any) -> list[str]:
    """The words with which ``parser`` gives the result of ``action`` this ``value``."""
    flag = next((name for name in action.option_strings if name.startswith("--")), action.option_strings[0])
    if action.nargs == 0:
        return [flag] if value == action.const else []
    found = [words for words in _spellings(flag, value) if _same(_parsed(parser, words, action.dest), value)]
    # A task may have made a list of the text after it was parsed.
    return found[0] if found else [f"{flag}={_listed(value)}"]


def _spellings(flag: str, value: Any) -> Iterator[list[str]]:
    yield [f"{flag}={_listed(value)}"]
    if isinstance(value, list | tuple):
        yield [flag, *map(str, value)]
    for text in (str(value), repr(value), json.dumps(value, default=str)):
        yield [f"{flag}={text}"]


def _listed(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _parsed(parser: ArgumentParser, words: list[str], name: str) -> Any:
    try:
        return getattr(parser.parse_args(words), name)
    except Exception:  # the types of flags are functions of fairseq's tasks, which may raise any
        return None


def _same(found: Any, value: Any) -> bool:
    if isinstance(found, list | tuple) and isinstance(value, list | tuple):
        return list(found) == list(value)
    return type(found) is type(value) and found == value

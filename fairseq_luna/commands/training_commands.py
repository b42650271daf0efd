"""Commands of fairseq-train that other commands print: to train on prepared text, or to train a converted model.

The flags of the second command repeat the settings of a checkpoint where they are not fairseq's defaults.
"""

import json
import math
from argparse import Action, ArgumentParser
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..command_line import Parser
from ..model_settings import settings_as_dict
from ..usage_error import UsageError
from .shell_commands import USER_DIR

Settings = Mapping[str, Any]

# Settings by the maximum number of training pairs: architecture, learning rate, warm-up updates, updates, tokens per
# update. The learning rate falls to 0 in small trainings, and with the inverse square root of the updates in others.
SIZES = (
    (20_000, ("luna_tiny", "0.003", "300", "2000", "1000")),
    (200_000, ("luna_tiny", "0.005", "1000", "5000", "4096")),
    (1_000_000, ("luna_iwslt_de_en", "0.0005", "4000", "50000", "4096")),
    (math.inf, ("luna_base", "0.0007", "4000", "100000", "4096")),
)
# Luna models with these options score best when trained on little text (docs/results.md).
BEST = (
    *("--untie-luna-kv", "--luna-source-attention", "softmax", "--attention-kernel-size", "5"),
    *("--encoder-normalize-before", "--decoder-normalize-before"),
)
ADAM = ("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)")
LOSS = "label_smoothed_cross_entropy"
# The same numbers on a CPU, bit for bit, in less time; on a GPU it can cost a little (docs/gpu.md).
LOSS_ON_CPU = "label_smoothed_cross_entropy_chunked"
SMALL = 256  # channels up to which a large learning rate trains a model well


def train(data: object, *flags: object) -> list[object]:
    """Arguments of a shell command: fairseq-train on ``data`` with ``flags``."""
    return ["fairseq-train", data, "--user-dir", USER_DIR, *flags]


def train_on_text(
    out: Path, languages: Sequence[str], pairs: int, *, joined: bool = True, on_gpu: bool = False
) -> list[object]:
    """Arguments of a shell command that trains on the data in ``out``.

    Args:
        out: folder that ``fairseq-luna prepare`` made.
        languages: source and target.
        pairs: number of training pairs.
        joined: whether both languages have the same dictionary, so that the model can share their embeddings.
        on_gpu: whether the command is for a GPU.
    """
    arch, rate, warmup, updates, tokens = next(settings for most, settings in SIZES if pairs <= most)
    schedule: tuple[object, ...] = ("--lr-scheduler", "inverse_sqrt")
    if arch.endswith("_tiny"):
        schedule = ("--lr-scheduler", "polynomial_decay", "--total-num-update", updates)
    words: list[object] = ["--save-dir", out / "checkpoints", "-s", languages[0], "-t", languages[1]]
    shared = "--share-all-embeddings" if joined else "--share-decoder-input-output-embed"
    words += ["--arch", arch, shared, *BEST, "--dropout", "0.1"]
    loss = LOSS if on_gpu else LOSS_ON_CPU
    words += ["--criterion", loss, "--label-smoothing", "0.1", *ADAM, "--clip-norm", "1.0", "--lr", rate, *schedule]
    words += ["--warmup-updates", warmup, "--max-tokens", tokens, "--max-update", updates, "--keep-last-epochs", "5"]
    return train(out / "bin", *words)


def train_converted(start: Path, data: object, cfg: Settings, flags: list[str]) -> list[object]:
    """Arguments of a shell command that trains the converted checkpoint ``start``.

    Args:
        start: the converted checkpoint.
        data: data of the training, as fairseq-train takes it.
        cfg: config of the original checkpoint, which determines the task, the criterion and the batches.
        flags: flags of the new model.
    """
    task, criterion = settings_as_dict(cfg.get("task")), settings_as_dict(cfg.get("criterion"))
    wide = cfg["model"]["encoder_embed_dim"] > SMALL
    languages = [(flag, task.get(name)) for flag, name in (("-s", "source_lang"), ("-t", "target_lang"))]
    words: list[object] = [word for flag, name in languages if name for word in (flag, name)]
    if task.get("_name", "translation") != "translation":
        words += ["--task", task["_name"]]
    task_arguments = task_flags(task, leave_out=("source_lang", "target_lang"))
    of_model = {word.partition("=")[0] for word in flags}
    words += [word for word in task_arguments if word.partition("=")[0] not in of_model]
    words += ["--criterion", criterion.get("_name") or LOSS]
    words += criterion_flags(criterion) if criterion.get("_name") else ["--label-smoothing=0.1"]
    words += [*ADAM, "--lr", "0.0005" if wide else "0.002", "--lr-scheduler", "polynomial_decay"]
    words += ["--warmup-updates", "100", "--total-num-update", "2000", "--max-update", "2000"]
    batches = group_flags(cfg)
    if not any(str(word).startswith(("--max-tokens=", "--batch-size=")) for word in batches):
        words += ["--max-tokens", "4096"]
    # In the old training's folder fairseq would go on from its last checkpoint instead.
    words += [*batches, "--save-dir", start.with_suffix(""), "--finetune-from-model", start]
    return train(data, *flags, *words)


# Settings of fairseq's general groups that the data and the loss depend on: the class of a group, and its names.
GROUPS = {
    "dataset": (
        "DatasetConfig",
        (
            *("dataset_impl", "train_subset", "valid_subset", "combine_valid_subsets", "ignore_unused_valid_subsets"),
            *("disable_validation", "skip_invalid_size_inputs_valid_test", "required_batch_size_multiple"),
            *("required_seq_len_multiple", "max_tokens", "batch_size", "max_tokens_valid"),
            *("batch_size_valid", "max_valid_steps", "fixed_validation_seed", "grouped_shuffling"),
        ),
    ),
    "optimization": ("OptimizationConfig", ("sentence_avg", "skip_remainder_batch", "update_freq", "clip_norm")),
    "distributed_training": ("DistributedTrainingConfig", ("ddp_backend", "find_unused_parameters")),
    "checkpoint": ("CheckpointConfig", ("best_checkpoint_metric", "maximize_best_checkpoint_metric")),
}
# Settings whose default is the value of another setting.
FOLLOWED = {"max_tokens_valid": "max_tokens", "batch_size_valid": "batch_size"}


def task_flags(settings: Any, *, leave_out: Collection[str] = ()) -> list[str]:
    """Flags for the ``settings`` of a checkpoint's task, without its name."""
    from fairseq.tasks import TASK_REGISTRY

    return _flags_of_part(TASK_REGISTRY, settings, leave_out)


def criterion_flags(settings: Any) -> list[str]:
    """Flags for the ``settings`` of a checkpoint's criterion, without its name."""
    from fairseq.criterions import CRITERION_REGISTRY

    return _flags_of_part(CRITERION_REGISTRY, settings, ())


def group_flags(cfg: Settings) -> list[str]:
    """Flags for the settings of :data:`GROUPS` in the checkpoint's config ``cfg``."""
    from fairseq.dataclass import configs
    from fairseq.dataclass.utils import gen_parser_from_dataclass

    words: list[str] = []
    for group, (kind, names) in GROUPS.items():
        default = getattr(configs, kind)()
        settings = settings_as_dict(cfg.get(group))
        values = {name: settings.get(name) for name in names}
        followed = {name for name, other in FOLLOWED.items() if values.get(name) == values.get(other)}
        words += flags_for(partial(gen_parser_from_dataclass, dataclass_instance=default), values, leave_out=followed)
    return words


def flags_for(
    add_flags: Callable[[ArgumentParser], object], settings: Settings, *, leave_out: Collection[str] = ()
) -> list[str]:
    """Flags for the ``settings`` that differ from the defaults of a parser.

    Args:
        add_flags: adds the flags to the parser.
        settings: values by name, also nested; names that the parser does not have are ignored.
        leave_out: names of settings to ignore too.
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
    for name, value in _flatten_settings(settings, actions):
        if name in actions and name not in leave_out and value is not None and value != defaults.get(name):
            words += _flag_arguments(parser, actions[name], value)
    return words


def _flags_of_part(registry: Settings, settings: Any, leave_out: Collection[str]) -> list[str]:
    settings = settings_as_dict(settings)
    kind = registry.get(settings.get("_name"))
    return flags_for(kind.add_args, settings, leave_out=leave_out) if kind else []


def _flatten_settings(settings: Settings, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if name not in names and isinstance(value, Mapping):
            yield from _flatten_settings(value, names)
        else:
            yield name, value


def _flag_arguments(parser: ArgumentParser, action: Action, value: Any) -> list[str]:
    """Arguments from which ``parser`` reads this ``value`` of ``action``."""
    flag = next((name for name in action.option_strings if name.startswith("--")), action.option_strings[0])
    if action.nargs == 0:
        return [flag] if value == action.const else []
    spellings = [
        words for words in _spellings(flag, value) if _is_same_value(_parse_flag(parser, words, action.dest), value)
    ]
    # A task may have made a list of the text after it was parsed.
    return spellings[0] if spellings else [f"{flag}={_join_values(value)}"]


def _spellings(flag: str, value: Any) -> Iterator[list[str]]:
    yield [f"{flag}={_join_values(value)}"]
    if isinstance(value, list | tuple):
        yield [flag, *map(str, value)]
    for text in (str(value), repr(value), json.dumps(value, default=str)):
        yield [f"{flag}={text}"]


def _join_values(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _parse_flag(parser: ArgumentParser, words: list[str], name: str) -> Any:
    try:
        return getattr(parser.parse_args(words), name)
    except Exception:  # the types of flags are functions of fairseq's tasks, which may raise any
        return None


def _is_same_value(parsed: Any, value: Any) -> bool:
    if isinstance(parsed, list | tuple) and isinstance(value, list | tuple):
        return list(parsed) == list(value)
    return type(parsed) is type(value) and parsed == value

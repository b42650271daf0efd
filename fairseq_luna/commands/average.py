"""Average the last checkpoints of a training into one checkpoint, which usually translates better.

    fairseq-luna average checkpoints --last 5 --output checkpoints/average.pt
    fairseq-luna average checkpoints --last 5 --by-updates --output checkpoints/average.pt
    fairseq-luna average a.pt b.pt c.pt --output average.pt

Checkpoints are loaded with weights_only, so that no code in them is executed. The average has no optimizer state.
"""

import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import environment
from ..command_line import positive
from ..files import check_output, save_checkpoint
from ..model_files import check_file, data_folder, dictionaries
from ..model_settings import settings_as_dict
from ..usage_error import UsageError
from .shell_commands import shell, show_next

_BY_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
_BY_UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
_SHOWN = {_BY_EPOCH: "epoch checkpoints (checkpointN.pt)", _BY_UPDATE: "update checkpoints (checkpoint_E_U.pt)"}


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="checkpoints, or with --last their folder")
    add("--last", type=positive, metavar="N", help="average the checkpoints of the last N epochs")
    add("--by-updates", action="store_true", help="with --last: checkpoints of --save-interval-updates, not epochs")
    add("--output", type=Path, required=True, metavar="FILE", help="checkpoint to write")
    add("--force", action="store_true", help="replace --output if it exists")


def run(args: Namespace) -> None:
    paths = choose_checkpoints(args)
    check_output(args.output, paths, force=args.force)
    environment.require_fairseq()
    from ..checkpoint_files import read_checkpoint
    from .checkpoint_mean import average, updates

    mean = average(paths)
    save_checkpoint(mean, args.output)
    print(f"{args.output}: the mean of {', '.join(path.name for path in paths)}")
    newest = args.paths[0] / "checkpoint_last.pt"
    ended = 0
    if args.last and newest.is_file():
        with suppress(UsageError):  # a damaged one does not concern the mean
            ended = updates(read_checkpoint(newest, plain=True))
    if ended > updates(mean):
        print(
            f"Note: {newest} was trained further, to update {ended}, and is not part of this average, which"
            f" ends at update {updates(mean)}: compare the scores of both"
        )
    data = data_flags(mean, paths[-1], args.output)
    show_next("translate what you type", shell("fairseq-luna", "translate", args.output, *data))


def data_flags(mean: Mapping[str, Any], trained: Path, output: Path) -> list[object]:
    """The flag ``--data`` for ``output``, if its data is found from the checkpoint ``trained`` only."""
    cfg = mean.get("cfg") or {}
    settings = {
        **settings_as_dict(cfg.get("checkpoint")),
        **settings_as_dict(cfg.get("task")),
        **settings_as_dict(mean.get("args")),
    }
    recorded, saved = str(settings.get("data") or ""), str(settings.get("save_dir") or "")
    recorded_folder = recorded.split(os.pathsep)[0]
    try:
        data = Path(data_folder(trained, recorded, saved) or recorded_folder)
    except UsageError:  # there are several, and the command itself says how to choose
        return []
    with suppress(UsageError):
        if Path(data_folder(output, recorded, saved) or recorded_folder).resolve() == data.resolve():
            return []
    return ["--data", data] if dictionaries(data) else []


def choose_checkpoints(args: Namespace) -> list[Path]:
    """Raises UsageError unless the flags name checkpoints, each once."""
    if args.last:
        if len(args.paths) > 1:
            raise UsageError(f"--last {args.last}: give one folder, not {' '.join(map(str, args.paths))}")
        return last_checkpoints(args.paths[0], args.last, by_updates=args.by_updates)
    if args.by_updates:
        raise UsageError("--by-updates: only with --last N")
    seen: set[Path] = set()
    for file in args.paths:
        if file.is_dir():
            raise UsageError(f"{file} is a folder: give --last N for the last N checkpoints in it")
        if file.resolve() in seen:
            raise UsageError(f"{file} is given twice, and would count twice; name it once")
        check_file(file, "checkpoint")
        seen.add(file.resolve())
    paths: list[Path] = args.paths
    return paths


def last_checkpoints(folder: Path, count: int, *, by_updates: bool = False) -> list[Path]:
    """The last ``count`` checkpoints of ``folder``, the newest last.

    Args:
        folder: fairseq-train's --save-dir.
        count: at least 1.
        by_updates: checkpoints of --save-interval-updates instead of epochs.

    Raises:
        UsageError: no such folder, or fewer checkpoints than ``count``.
    """
    if folder.is_file():
        raise UsageError(f"--last {count}: {folder} is a file; give its folder, {folder.parent}, or leave --last out")
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    pattern, other_pattern = (_BY_UPDATE, _BY_EPOCH) if by_updates else (_BY_EPOCH, _BY_UPDATE)
    checkpoints = _numbered_checkpoints(folder, pattern)
    if len(checkpoints) < count:
        message = f"--last {count}: {folder} has {len(checkpoints)} {_SHOWN[pattern]}"
        if instead := len(_numbered_checkpoints(folder, other_pattern)):
            verb = "leave out" if by_updates else "give"
            message += f" and {instead} {_SHOWN[other_pattern]}: {verb} --by-updates for those"
        elif checkpoints:
            message += f"; give --last {len(checkpoints)}, or translate with {folder}, which takes its best checkpoint"
        raise UsageError(message)
    return checkpoints[-count:]


def _numbered_checkpoints(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    matches = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches if match)]

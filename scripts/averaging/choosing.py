"""The last checkpoints of a training, by the numbers in their names."""

import re
from pathlib import Path

from shared.command import CommandError

_BY_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
_BY_UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
_SHOWN = {_BY_EPOCH: "epoch checkpoints (checkpointN.pt)", _BY_UPDATE: "update checkpoints (checkpoint_E_U.pt)"}


def last(folder: Path, count: int, *, by_updates: bool = False) -> list[Path]:
    """The last ``count`` checkpoints of ``folder``, the newest last.

    Args:
        folder: fairseq-train's --save-dir.
        count: at least 1.
        by_updates: those of --save-interval-updates instead of epochs.

    Raises:
        CommandError: no such folder, or fewer checkpoints than ``count``.
    """
    if not folder.is_dir():
        raise CommandError(f"--last: there is no folder {folder}")
    wanted, others = (_BY_UPDATE, _BY_EPOCH) if by_updates else (_BY_EPOCH, _BY_UPDATE)
    found = _numbered(folder, wanted)
    if count < 1 or len(found) < count:
        message = f"--last {count}: {folder} has {len(found)} {_SHOWN[wanted]}"
        if instead := len(_numbered(folder, others)):
            message += (
                f" and {instead} {_SHOWN[others]}: {'leave out' if by_updates else 'give'} --by-updates for those"
            )
        raise CommandError(message)
    return found[-count:]


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    matches = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches if match)]

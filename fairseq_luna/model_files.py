"""Places of the files of a trained model: checkpoints, dictionaries, subword model. Needs neither torch nor fairseq."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from .usage_error import UsageError

PathLike = str | os.PathLike[str]
CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt", "model.pt")
CODES = ("codes", "bpecodes")
NONE = "none"  # in place of a subword model, for text that is in pieces


def check_files(path: PathLike, data: PathLike | None, pieces: PathLike | None) -> list[Path]:
    """The checkpoints at ``path``, after a check of all paths given to :func:`fairseq_luna.load`.

    Raises:
        UsageError: there is no such file or folder.
    """
    files = checkpoints(path)
    if data is not None and not Path(os.fspath(data).split(os.pathsep)[0]).is_dir():
        raise UsageError(
            f"--data {data} (data=): there is no such folder; name the one with the dictionaries, dict.*.txt"
        )
    if pieces is not None and os.fspath(pieces) != NONE:
        check_file(Path(pieces), "subword model")
    return files


def binary_data(data: PathLike) -> PathLike:
    """The folder with dictionaries: ``data``, or ``bin`` in a folder that ``fairseq-luna prepare`` made."""
    inside = Path(data) / "bin"
    return inside if not dictionaries(Path(data)) and dictionaries(inside) else data


def check_file(path: Path, description: str) -> None:
    """Raises UsageError unless ``path`` is a regular file, which can be read more than once and from any place.

    Args:
        what: what the file should be, in words.
    """
    if path.is_file():
        return
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name the {description} in it")
    if path.exists():
        raise UsageError(f"{path}: is a pipe or a device, and is read more than once; save it to a file")
    raise UsageError(f"{path}: there is no such {description}")


def checkpoints(path: PathLike) -> list[Path]:
    """The checkpoint at ``path``, or the checkpoints of an ensemble; each may be named by its folder."""
    parts = [os.fspath(path)] if os.fspath(path) and Path(path).exists() else os.fspath(path).split(os.pathsep)
    if "" in parts:
        raise UsageError(f"{os.fspath(path)!r}: the name of a checkpoint is empty; name a file or its folder")
    return [_checkpoint(Path(part)) for part in parts]


def _checkpoint(path: Path) -> Path:
    if not path.is_dir():
        check_file(path, "checkpoint")
        return path
    for name in CHECKPOINTS:
        if (file := path / name).is_file():
            return file
    if (path / "settings.json").is_file() and any(path.glob("*.onnx")):
        raise UsageError(f"{path}: is an exported model; translate with python -m fairseq_luna.deployed {path}")
    inside = path / "checkpoints"
    advice = f"give {inside}" if inside.is_dir() else "name the checkpoint"
    raise UsageError(f"{path}: has none of {', '.join(CHECKPOINTS)}; {advice}")


def data_folder(checkpoint: Path, data: str, save_dir: str) -> Path | None:
    """The folder with the dictionaries of ``checkpoint``, if it is not the one that the checkpoint records.

    They may be beside the checkpoint. The folder of a training may also have moved as a whole, or its paths may be
    relative to another folder than the current one. The way from one recorded path to the other then still leads from
    the checkpoint to the data.

    Args:
        data, save_dir: paths that the checkpoint records; "" if it does not.

    Returns:
        None if the recorded path is right, or if no dictionaries are found.

    Raises:
        UsageError: two places have dictionaries, which differ.
    """
    folder = Path(os.path.abspath(checkpoint.parent))
    if dictionaries(folder):
        return checkpoint.parent
    recorded = Path(data.split(os.pathsep)[0])
    recorded_exists = bool(data) and bool(dictionaries(recorded))
    if recorded_exists and recorded.is_absolute():
        return None
    candidate = next(
        (place for place in _possible_data_folders(folder, recorded, save_dir) if dictionaries(place)), None
    )
    if candidate is None or not recorded_exists:
        return candidate
    if dictionaries(candidate) != dictionaries(recorded):
        raise UsageError(
            f"{checkpoint}: {candidate} and {recorded}, relative to the current folder, have other dictionaries; choose"
            " with --data (in Python data=)"
        )
    return None


def _possible_data_folders(folder: Path, recorded: Path, save_dir: str) -> Iterator[Path]:
    """Possible places of the data, seen from the checkpoint's ``folder``."""
    if recorded.name and save_dir and recorded.is_absolute() == Path(save_dir).is_absolute():
        yield Path(os.path.normpath(folder / os.path.relpath(recorded, save_dir)))
    if recorded.name and not recorded.is_absolute():
        yield from (parent / recorded for parent in folder.parents)
    yield folder.parent / "bin"


def dictionaries(folder: Path) -> dict[str, bytes]:
    """The contents of the fairseq dictionaries in ``folder``, by file name."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("dict.*.txt")) if file.is_file()}


def subword_model(folders: Iterable[Path]) -> Path | None:
    """The subword model in the first of ``folders`` that has one."""
    for folder in folders:
        candidates = [*folder.glob("*.model"), *(folder / name for name in CODES if (folder / name).is_file())]
        if len(candidates) > 1:
            raise UsageError(
                f"{folder}: has {', '.join(sorted(file.name for file in candidates))}; choose with pieces= (--pieces)"
            )
        if candidates:
            return candidates[0]
    return None

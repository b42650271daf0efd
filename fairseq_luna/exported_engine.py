"""The exported engine behind ``load(..., engine="onnx")`` and ``fairseq-luna translate --engine onnx``.

A model is exported once, to a folder beside its checkpoint, and then read from there.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

from . import __version__, load
from .deployed.folder import FORMAT, SETTINGS
from .files import atomic_write, fingerprint, locked, remove
from .model_files import CODES, NONE, PathLike, binary_data, check_files
from .usage_error import UsageError

TORCH, ONNX = ENGINES = ("torch", "onnx")
OPTIONS = tuple(signature(load).parameters)
RECORDED = "files_of_training.json"  # in an exported folder: dictionaries and subword models, by their paths
INSTALL = "pip install onnx onnxscript onnxruntime"


def exported_translator(
    path: PathLike,
    *,
    data: PathLike | None = None,
    pieces: PathLike | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    threads: int = 1,
) -> Any:
    """A :class:`fairseq_luna.deployed.Translator` for the checkpoint at ``path``, which is exported at the first use.

    Args:
        path, data, pieces, source_lang, target_lang: see :func:`fairseq_luna.load`; ``path`` is not an ensemble.
        threads: number of CPU threads.

    Raises:
        UsageError: the model cannot be exported, the folder of the checkpoint cannot be written to, or onnxruntime,
            onnx or onnxscript is missing.
    """
    files = check_files(path, data, pieces)
    if len(files) > 1:
        raise UsageError(f"{path}: an ensemble has no exported engine; give one checkpoint, such as an average")
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    folder = exported_folder(files[0], data, pieces, languages)
    try:
        if not _is_current(folder):
            export_once(files[0], folder, data=data, pieces=pieces, languages=languages)
        from .deployed import Translator

        return Translator(folder, threads=threads)
    except ImportError as error:
        raise UsageError(f"engine onnx (--engine): {error}; {INSTALL}") from error
    except PermissionError as error:
        raise UsageError(
            f"{folder.parent}: cannot be written to, and the exported model is kept there; copy the checkpoint with its"
            " dictionaries to another folder"
        ) from error


def export_once(checkpoint: Path, folder: Path, **options: Any) -> None:
    """Export ``checkpoint`` to ``folder``, or wait for another process that does it."""
    from .exporting import export_model

    with locked(folder) as alone:
        if not alone:
            print(f"waiting for another process, which makes {folder} ...", file=sys.stderr, flush=True)
    with locked(folder, wait=True), contextlib.redirect_stdout(sys.stderr):  # standard output is for translations
        if not _is_current(folder):
            with atomic_write(folder) as unfinished:
                export_model(checkpoint, unfinished, **options)
                files = dict(_files_at_recorded_path(checkpoint)) if options["data"] is None else {}
                (unfinished / RECORDED).write_text(json.dumps(files), encoding="utf-8")
                remove(folder)


def _is_current(folder: Path) -> bool:
    """Whether ``folder`` is complete, and the files at the recorded path of the data are as they were."""
    if not (folder / SETTINGS).is_file() or not (folder / RECORDED).is_file():
        return False
    files = json.loads((folder / RECORDED).read_text(encoding="utf-8"))
    return all(not Path(file).is_file() or fingerprint(Path(file)) == before for file, before in files.items())


def _files_at_recorded_path(checkpoint: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The dictionaries and subword models at the path of the data that ``checkpoint`` records, and fingerprints."""
    from .checkpoint_files import read_checkpoint
    from .loading import data_place, settings_by_part

    settings = settings_by_part(checkpoint, read_checkpoint(checkpoint))
    place = data_place(checkpoint, settings, None) or str(settings["task"].get("data") or "").split(os.pathsep)[0]
    for file in _files_beside(Path(os.path.abspath(place))):
        yield str(file), fingerprint(file)


def load_exported(path: PathLike, engine: str, options: dict[str, Any]) -> Any:
    """Load the translator for ``load(path, engine=engine, **options)``.

    Raises:
        UsageError: there is no such ``engine``, or it does not have an option that is given.
    """
    if engine != ONNX:
        raise UsageError(f"engine {engine}: choose one of {', '.join(ENGINES)}")
    file_options = {name: options.pop(name, None) for name in ("data", "pieces", "source_lang", "target_lang")}
    unsupported_options = {
        name: value
        for name, value in options.items()
        if name not in OPTIONS or (value is not None and value is not False)  # 0 is given
    }
    if str(unsupported_options.pop("device", "cpu")) != "cpu":
        raise UsageError('device: the exported engine (engine="onnx") is for a CPU; leave one of them out')
    if unsupported_options:
        if unknown := unsupported_options.keys() - {*OPTIONS}:
            _check_names(path, sorted(unknown), **file_options)
        raise UsageError(f'{", ".join(unsupported_options)}: only engine="torch" has this; leave engine out')
    return exported_translator(path, **file_options)


def _check_names(path: PathLike, names: Iterable[str], *, data: Any, pieces: Any, **_: Any) -> None:
    """Raises TypeError if one of ``names`` is no option of ``load`` with this checkpoint, for either engine."""
    from .checkpoint_files import read_checkpoint
    from .loading import check_override_names, settings_by_part

    file = check_files(path, data, pieces)[0]
    check_override_names(names, settings_by_part(file, read_checkpoint(file)))


def exported_folder(
    checkpoint: Path, data: PathLike | None, pieces: PathLike | None, languages: dict[str, str | None]
) -> Path:
    """The folder beside ``checkpoint`` for its exported model, which depends on the options and on all contents.

    The dictionaries and the subword model may be replaced by others of the same name: what is at ``data`` and
    ``pieces``, beside the checkpoint and beside its folder, is read. Files at the path of the data that the checkpoint
    records are compared when the folder is used.
    """
    options = hashlib.sha256()
    for part in (fingerprint(checkpoint), data and Path(data).resolve(), pieces and Path(pieces).resolve(), languages):
        options.update(f"{part}\n".encode())
    for file in _text_files(checkpoint, data, pieces):
        options.update(f"{file.name} {fingerprint(file)}\n".encode())
    options.update(f"{FORMAT} {__version__}".encode())
    return checkpoint.with_name(f"{checkpoint.stem}.onnx-{options.hexdigest()[:12]}")


def _text_files(checkpoint: Path, data: PathLike | None, pieces: PathLike | None) -> Iterator[Path]:
    """Dictionaries and subword models that the checkpoint may be read with."""
    folder = Path(os.path.abspath(checkpoint.parent))
    places = [folder, folder.parent, folder.parent / "bin"]
    if data is not None:
        binary = Path(os.path.abspath(binary_data(os.fspath(data).split(os.pathsep)[0])))
        yield from _files_beside(binary)
    for place in places:
        yield from _files_in(place)
    if pieces is not None and os.fspath(pieces) != NONE:
        yield Path(pieces)


def _files_beside(data: Path) -> Iterator[Path]:
    """The dictionaries and subword models of the folder ``data``, where :func:`fairseq_luna.load` looks for them."""
    for place in (data, data.parent, data.parent / "sentencepiece"):
        yield from _files_in(place)


def _files_in(folder: Path) -> Iterator[Path]:
    for pattern in ("dict.*.txt", "*.model", *CODES):
        yield from sorted(file for file in folder.glob(pattern) if file.is_file())

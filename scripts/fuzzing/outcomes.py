"""The outcome of a configuration: it is trained, refused or a failure."""

import contextlib
import io
import logging
import re
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fairseq

import fairseq_luna.models  # registers the models
from fairseq_luna.usage_error import UsageError
from fuzzing.configurations import Configuration
from fuzzing.life import train, use
from fuzzing.parsing import parse

TRAINED, REFUSED, FAILED = "trained", "refused", "failed"
_PACKAGE = Path(fairseq_luna.__file__).parent

# The errors with which fairseq and torch refuse their own flags, by type and the start of the message. Any other error
# is a failure.
_FAIRSEQS_REFUSALS: tuple[tuple[type[Exception], str], ...] = (
    (ValueError, "--"),  # names the flag
    (AssertionError, "--"),
    (AssertionError, "cannot specify cutoff larger than vocab"),
    (AssertionError, "Input features must be a multiple of block sizes"),
    (AssertionError, "Torch not compiled with CUDA"),  # --fp16, --quant-noise-scalar
    (RuntimeError, "Found no NVIDIA driver"),
    (KeyError, ".*LearnedPositionalEmbedding"),  # --quant-noise-scalar
    (RuntimeError, "The expanded size of the tensor"),  # vectors of another size in --encoder-embed-path
    (FileNotFoundError, ".*No such file"),
    (ValueError, "Cannot use a fixed learning rate schedule"),
    (RuntimeError, "chosen optimizer does not support flat params"),
    (AssertionError, "AdaptiveLoss"),
)


class Outcome(NamedTuple):
    """``line`` is a refusal's message, or a failure's place and message; ``trace`` is a failure's traceback."""

    kind: str
    line: str = ""
    trace: str = ""

    @property
    def group(self) -> str:
        """The line without numbers, paths and quoted values."""
        return re.sub(r"/\S*/|(?<![\w])-?\d[\d.e-]*|'[^']*'|\[.*?\]", "N", self.line)


def outcome(configuration: Configuration) -> Outcome:
    """Train ``configuration`` and use the model."""
    with tempfile.TemporaryDirectory() as temporary, _quiet() as said:
        folder = Path(temporary)
        arguments = _with_files(configuration.arguments(), folder)
        try:
            cfg = parse(arguments)
            cfg.checkpoint.save_dir = temporary  # fairseq leaves a crash.pt there
            trained = train(cfg, joined=configuration.joined)
        except SystemExit:
            return _refused(arguments, said.getvalue().rstrip().rpartition("error: ")[2])
        except UsageError as error:
            return _refused(arguments, str(error))
        except Exception as error:
            ours = Path(_innermost(error).filename).is_relative_to(_PACKAGE)
            return Outcome(REFUSED, str(error)) if _is_fairseqs(error) and not ours else _failed(error)
        if configuration.is_bad:
            return Outcome(FAILED, f"was not refused: {[flag.text for flag in configuration.flags if flag.is_bad]}")
        try:
            use(trained, folder, joined=configuration.joined)
        except Exception as error:
            return _failed(error)
    return Outcome(TRAINED)


def _is_fairseqs(error: Exception) -> bool:
    """Whether fairseq or torch refused a flag."""
    return any(isinstance(error, kind) and re.match(pattern, str(error)) for kind, pattern in _FAIRSEQS_REFUSALS)


def _innermost(error: Exception) -> traceback.FrameSummary:
    """The innermost frame of fairseq or this package; of this module if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    folders = (Path(fairseq.__file__).parent, _PACKAGE)  # a checkout may have their names too
    packages = [frame for frame in frames if any(Path(frame.filename).is_relative_to(folder) for folder in folders)]
    return (packages or frames)[-1 if packages else 0]


def _failed(error: Exception) -> Outcome:
    """The place of the error, and the first line of its message."""
    frame = _innermost(error)
    where = "fuzzing" if frame.filename == __file__ else f"{Path(frame.filename).stem}.{frame.name}"
    first, *_ = str(error).strip().split("\n")
    return Outcome(FAILED, f"{type(error).__name__} in {where}: {first}", traceback.format_exc())


def _refused(arguments: list[str], line: str) -> Outcome:
    """A refusal, or a failure if the message names none of the given flags and files."""
    given = {argument.partition("=")[0] for argument in arguments}
    files = [argument.partition("=")[2] for argument in arguments if "/" in argument]
    if given.isdisjoint(re.findall(r"--[a-z][a-z0-9-]*", line)) and not any(file in line for file in files):
        return Outcome(FAILED, f"names none of the flags given: {line}")
    return Outcome(REFUSED, line)


def _with_files(arguments: list[str], folder: Path) -> list[str]:
    """``arguments`` with paths for ``{embeddings}``, a file of vectors of 8 numbers, and ``{missing}``."""
    if any("{embeddings}" in argument for argument in arguments):
        vectors = "".join(f"w{word} {' '.join(['0.5'] * 8)}\n" for word in range(5))
        (folder / "embeddings").write_text(f"5 8\n{vectors}", encoding="utf-8")
    for name in ("embeddings", "missing"):
        arguments = [argument.replace(f"{{{name}}}", str(folder / name)) for argument in arguments]
    return arguments


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Suppress logs and warnings; the result has argparse's messages."""
    said = io.StringIO()
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield said
    finally:
        logging.disable(disabled)

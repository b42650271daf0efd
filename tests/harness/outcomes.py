"""The outcome of a configuration: it is trained and used, or refused in a line; all else is a failure."""

import contextlib
import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import fairseq

import fairseq_luna
from fairseq_luna.usage_error import UsageError

from .configurations import Configuration
from .life import Broken, train, use
from .parsing import parse

PACKAGE = Path(fairseq_luna.__file__).parent

# The errors with which fairseq and torch refuse their own flags, by type and the start of the message. Any other error
# is a failure.
FAIRSEQS_REFUSALS: tuple[tuple[type[Exception], str], ...] = (
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


def outcome(configuration: Configuration, folder: Path) -> str:
    """Train ``configuration`` and use the model. The line of its refusal; "" if it trains.

    Raises:
        Broken: a property of every configuration does not hold.
        Exception: anything else that fails.
    """
    arguments = _with_files(configuration.arguments(), folder)
    with _quiet() as said:
        try:
            cfg = parse(arguments)
            cfg.checkpoint.save_dir = str(folder)  # fairseq leaves a crash.pt there
            trainer = train(cfg, joined=configuration.joined)
        except SystemExit:
            return _checked(arguments, said.getvalue().rstrip().rpartition("error: ")[2])
        except UsageError as error:
            return _checked(arguments, str(error))
        except Exception as error:
            if not _is_fairseqs(error):
                raise
            return str(error) or type(error).__name__
        if bad := [flag.text for flag in configuration.flags if flag.is_bad]:
            raise Broken(f"was not refused: {bad}")
        use(trainer, folder, joined=configuration.joined)
    return ""


def _is_fairseqs(error: Exception) -> bool:
    """Whether fairseq or torch refused a flag; not in code of this package, which has lines of its own."""
    frames = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    folders = (Path(fairseq.__file__).parent, PACKAGE)
    inner = [path for path in frames if any(path.is_relative_to(folder) for folder in folders)]
    refused = any(isinstance(error, kind) and re.match(pattern, str(error)) for kind, pattern in FAIRSEQS_REFUSALS)
    return refused and not (inner and inner[-1].is_relative_to(PACKAGE))


def _checked(arguments: list[str], line: str) -> str:
    """``line``, which must name a flag or a file that was given."""
    given = {argument.partition("=")[0] for argument in arguments}
    files = [argument.partition("=")[2] for argument in arguments if "/" in argument]
    if given.isdisjoint(re.findall(r"--[a-z][a-z0-9-]*", line)) and not any(file in line for file in files):
        raise Broken(f"names none of the flags given: {line}")
    return line


def _with_files(arguments: list[str], folder: Path) -> list[str]:
    """``arguments`` with paths for ``{embeddings}``, a file of vectors of 8 numbers, and ``{missing}``."""
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

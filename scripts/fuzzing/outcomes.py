"""What became of a configuration: it trained, it was refused in a line, or it failed."""

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

import fairseq_luna.models  # noqa: F401 (registers the models)
from fairseq_luna.usage_error import UsageError
from fuzzing.complaints import is_fairseqs
from fuzzing.configurations import Configuration
from fuzzing.life import train, use
from fuzzing.parsing import parse

TRAINED, REFUSED, FAILED = "trained", "refused", "failed"


class Outcome(NamedTuple):
    """``kind`` is one of the three; ``line`` what was said, of a failure where and what; ``trace`` a failure's own."""

    kind: str
    line: str = ""
    trace: str = ""

    @property
    def group(self) -> str:
        """The line without what differs from example to example."""
        return re.sub(r"/\S*/|(?<![\w])-?\d[\d.e-]*|'[^']*'|\[.*?\]", "N", self.line)


def outcome(configuration: Configuration) -> Outcome:
    """Let ``configuration`` live, and judge how it ends."""
    with tempfile.TemporaryDirectory() as temporary, _quiet() as said:
        folder = Path(temporary)
        arguments = _with_files(configuration.arguments(), folder)
        try:
            cfg = parse(arguments)
            cfg.checkpoint.save_dir = temporary  # fairseq leaves a crash.pt there
            trained = train(cfg, joined=configuration.joined)
        except SystemExit:
            return _refused(arguments, said.getvalue().rstrip().rpartition("error: ")[2])
        except Exception as error:
            if isinstance(error, UsageError):
                return _refused(arguments, str(error))
            return Outcome(REFUSED, str(error)) if is_fairseqs(error) else _failed(error)
        if configuration.is_bad:
            return Outcome(FAILED, f"was not refused: {[flag.text for flag in configuration.flags if flag.is_bad]}")
        try:
            use(trained, folder, joined=configuration.joined)
        except Exception as error:
            return _failed(error)
    return Outcome(TRAINED)


def _failed(error: Exception) -> Outcome:
    """What and where: the first line of the message, and the innermost function of fairseq's or of this package's."""
    frames = traceback.extract_tb(error.__traceback__)
    hosts = [frame for frame in frames if re.search(r"[/\\]fairseq(_luna)?[/\\]", frame.filename)]
    where = f"{Path(hosts[-1].filename).stem}.{hosts[-1].name}" if hosts else "fuzzing"
    first, *_ = str(error).strip().split("\n")
    return Outcome(FAILED, f"{type(error).__name__} in {where}: {first}", traceback.format_exc())


def _refused(arguments: list[str], line: str) -> Outcome:
    """A line must name a flag or a file that was given."""
    given = {argument.partition("=")[0] for argument in arguments}
    files = [argument.partition("=")[2] for argument in arguments if "/" in argument]
    if given.isdisjoint(re.findall(r"--[a-z][a-z0-9-]*", line)) and not any(file in line for file in files):
        return Outcome(FAILED, f"names none of the flags given: {line}")
    return Outcome(REFUSED, line)


def _with_files(arguments: list[str], folder: Path) -> list[str]:
    """``arguments`` with paths in the places of ``{embeddings}``, vectors of 8 numbers, and ``{missing}``."""
    if any("{embeddings}" in argument for argument in arguments):
        vectors = "".join(f"w{word} {' '.join(['0.5'] * 8)}\n" for word in range(5))
        (folder / "embeddings").write_text(f"5 8\n{vectors}", encoding="utf-8")
    for name in ("embeddings", "missing"):
        arguments = [argument.replace(f"{{{name}}}", str(folder / name)) for argument in arguments]
    return arguments


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Neither logs nor warnings; what argparse says goes into the result."""
    said = io.StringIO()
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield said
    finally:
        logging.disable(disabled)

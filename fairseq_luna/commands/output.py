"""A file that a command writes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..usage_error import UsageError
from .steps import complete


def check_output(output: Path, inputs: Iterable[Path], *, force: bool, flag: str = "--output") -> None:
    """Raises UsageError if ``output``, the value of ``flag``, cannot be written, or would replace something."""
    if output.resolve() in {path.resolve() for path in inputs}:
        raise UsageError(f"{flag} {output}: that is an input; give another name")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{flag} {output}: there is no folder {output.parent}")
    if output.exists() and not (output.is_dir() or output.is_file()):
        raise UsageError(f"{flag} {output}: is a pipe or a device, and would be replaced; name a file")
    if output.is_dir() or (output.exists() and not force):
        raise UsageError(f"{flag} {output}: it exists; give another name{'' if output.is_dir() else ', or --force'}")


def save(state: dict[str, Any], output: Path) -> None:
    """Write the checkpoint ``output`` so that it is never incomplete. Raises UsageError if it cannot be written."""
    import torch  # takes seconds; wrong flags are refused before that

    try:
        with complete(output) as unfinished:
            torch.save(state, unfinished)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError when the disk is full
        raise UsageError(f"--output {output}: {next(iter(str(error).splitlines()), error)}") from error

"""Bad input that fairseq, torch or hydra complain of, in one line; every other error keeps its traceback.

LOGLEVEL=DEBUG, fairseq's own switch, shows the tracebacks of these too.
"""

import contextlib
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from types import FrameType
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from fairseq_luna.compat.complaints import COMPLAINTS, Complaint
from fairseq_luna.usage_error import own_words

logger = logging.getLogger(__name__)

# What calls others' code, or does what it was told: it is its caller that explains an error.
_TOLD = {*sys.stdlib_module_names, "numpy", "omegaconf", "hydra", "iopath", "fvcore"}
_HOST = {"fairseq", "fairseq_cli", __name__.split(".")[0]}
# Where configs are put together; elsewhere a key that is not there is a fault of the code.
_CONFIGURING = re.compile("merge_with_parent|from_namespace|convert_namespace_to_omegaconf|cli_main|.*hydra_main")


def in_one_line(error: BaseException) -> str | None:
    """What a program that ``error`` ends prints in place of a traceback; None if no input explains the error."""
    if (words := own_words(error)) is not None:
        return words
    line = _of_host(error)
    if line is not None:
        logger.debug(line, exc_info=error)
    return line


def _of_host(error: BaseException) -> str | None:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if _package(frame) not in _TOLD]
    if not frames:
        return None
    raiser = frames[-1]
    if _package(raiser) in _HOST:
        if isinstance(error, OSError) and error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        if isinstance(error, OmegaConfBaseException | HydraException):
            return _of_config(error, raiser.f_code.co_name)
    for complaint in COMPLAINTS:
        found = re.match(complaint.pattern, str(error).strip())
        if isinstance(error, complaint.kind) and found:
            known = _variables(complaint, frames if complaint.through else [raiser])
            if known is not None:
                first, *_ = str(error).strip().split("\n")
                with contextlib.suppress(AttributeError, LookupError):  # another version names its variables otherwise
                    return complaint.line.format(*found.groups(), **{**known, "message": first})
    return None


def _of_config(error: BaseException, raiser: str) -> str | None:
    """A misspelt or missing key of a config, or a value of the wrong type, with the key's name."""
    first, *_ = str(error).strip().split("\n")
    key = getattr(error, "full_key", None)
    if isinstance(error, MissingMandatoryValue) and key:
        return f"--{key.replace('_', '-')} is required"
    if not _CONFIGURING.fullmatch(raiser):
        return None
    return f"{key}: {first}" if key else first


def _package(frame: FrameType) -> str:
    """The package that a function belongs to, also where a module of it is run as a program."""
    spec = frame.f_globals.get("__spec__")
    name: str = spec.name if spec is not None else frame.f_globals.get("__name__", "")
    return name.split(".")[0]


def _variables(complaint: Complaint, frames: list[FrameType]) -> Mapping[str, Any] | None:
    """The variables of the innermost of the calls ``frames`` that is the complaint's function; None if none is."""
    if complaint.function is None:
        return {}
    hosts = (frame for frame in frames if _package(frame) in {*_HOST, "torch"})
    calls = [frame for frame in hosts if re.fullmatch(complaint.function, frame.f_code.co_name)]
    return dict(calls[-1].f_locals) if calls else None

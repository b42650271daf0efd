"""fairseq-hydra-train prints a traceback for bad input: hydra catches every error before Python's own hook sees it."""

import contextlib
import io
import traceback
from types import SimpleNamespace
from typing import Any

from hydra._internal import utils

from fairseq_luna.compat.one_line import in_one_line
from fairseq_luna.compat.patch import Patch
from fairseq_luna.usage_error import UsageError, print_line


def is_needed() -> bool:
    """Whether hydra shows more of a UsageError than its message."""

    def run_job() -> None:  # hydra looks for this name, and the caller's, in the traceback
        task()

    def task() -> None:
        raise UsageError("probe")

    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit, Exception):
        utils.run_and_report(run_job)
    return "fairseq_luna: error: probe" not in printed.getvalue()


def print_exception(*_: Any, value: BaseException, tb: Any, **__: Any) -> None:
    """What hydra calls, in place of its namesake."""
    line = in_one_line(value)
    if line is None:
        # By position: Python 3.10 no longer takes the first one by the name that hydra 1.0 gives it.
        traceback.print_exception(None, value, tb)
    else:
        print_line(line)


def apply() -> None:
    if hasattr(utils, "print_exception"):
        utils.print_exception = print_exception
    else:
        utils.traceback = SimpleNamespace(**{**vars(traceback), "print_exception": print_exception})


PATCH = Patch("hydra", is_needed, apply, "fairseq-hydra-train hid bad input in a traceback; it is said in one line")

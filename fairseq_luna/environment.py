"""The installed fairseq, and advice if it is missing or does not support this Python.

fairseq 0.12.2 cannot be imported from Python 3.11 on; ``fairseq-fixed`` is fairseq's main branch with that fixed. Both
install the same package, ``fairseq``.
"""

import importlib
import platform
import sys
from importlib import metadata, util

from . import silenced_logs
from .usage_error import UsageError

_FITTING = "fairseq-fixed==0.12.3.1" if sys.version_info >= (3, 11) else "fairseq==0.12.2"


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def fairseq_distribution() -> str | None:
    """The distribution that provides fairseq, with its version (both, if two are installed), or None."""
    distributions = [f"{name} {version_of(name)}" for name in ("fairseq", "fairseq-fixed") if version_of(name)]
    if distributions:
        return " over ".join(distributions)
    return "fairseq from a source tree" if util.find_spec("fairseq") else None


def fairseq_missing() -> str | None:
    """One line that says which fairseq to install, or None if one is installed."""
    return f"fairseq is not installed: pip install {_FITTING}" if fairseq_distribution() is None else None


def fairseq_problem() -> str | None:
    """One line that says why fairseq cannot be imported and what to install, or None if it can."""
    if (missing := fairseq_missing()) is not None:
        return missing
    try:
        with silenced_logs.silence_fairseq(), silenced_logs.restore_root_logger():
            importlib.import_module("fairseq")
    except Exception as error:  # a broken installation can raise anything
        return (
            f"{fairseq_distribution()} cannot be imported from Python {platform.python_version()}"
            f" ({type(error).__name__}: {' '.join(str(error).split())}): "
            f"pip uninstall -y fairseq fairseq-fixed && pip install {_FITTING}"
        )
    return None


def require_fairseq() -> None:
    """Import fairseq. Raises UsageError, with what to install, if it cannot be imported."""
    if (problem := fairseq_problem()) is not None:
        raise UsageError(problem)

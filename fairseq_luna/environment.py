"""Which fairseq is here, and what to do when it is missing or made for another Python.

fairseq 0.12.2 fails while it is being imported from Python 3.11 on; ``fairseq-fixed`` is its main branch with
that repaired. Both install the same package, ``fairseq``.
"""

import importlib
import platform
import sys
from importlib import metadata, util

_FITTING = "fairseq-fixed==0.12.3.1" if sys.version_info >= (3, 11) else "fairseq==0.12.2"


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def fairseq_distribution() -> str | None:
    """What provides fairseq here, with its version (both names, if two lie in one folder), or None."""
    found = [f"{name} {version_of(name)}" for name in ("fairseq", "fairseq-fixed") if version_of(name)]
    if found:
        return " over ".join(found)
    return "fairseq from a source tree" if util.find_spec("fairseq") else None


def fairseq_problem() -> str | None:
    """One line that says why fairseq cannot be used here and what to install instead; None when it can."""
    present = fairseq_distribution()
    if present is None:
        return f"fairseq is not installed: pip install {_FITTING}"
    try:
        importlib.import_module("fairseq")
    except Exception as error:  # whatever a broken installation raises, what to do about it is the same
        return (
            f"{present} cannot be imported from Python {platform.python_version()} ({type(error).__name__}): "
            f"pip uninstall -y fairseq fairseq-fixed && pip install {_FITTING}"
        )
    return None

"""A patch for a fault of the installed fairseq or torch."""

from collections.abc import Callable
from typing import NamedTuple


class Patch(NamedTuple):
    """``is_needed()`` probes for the fault; ``apply()`` fixes it in this process; ``summary`` describes both."""

    name: str
    is_needed: Callable[[], bool]
    apply: Callable[[], None]
    summary: str


class Result(NamedTuple):
    """Whether a patch was applied in this process."""

    name: str
    applied: bool
    summary: str

"""What a mend is: a probe that shows a fault of the host, and the change that puts it right."""

from collections.abc import Callable
from typing import NamedTuple


class Mend(NamedTuple):
    """``probe()`` is True while the installed fairseq has the fault; ``line`` says what ``mend()`` does."""

    name: str
    probe: Callable[[], bool]
    mend: Callable[[], None]
    line: str


class Result(NamedTuple):
    """What became of a mend in this process: applied where it was needed, else left out."""

    name: str
    needed: bool
    line: str

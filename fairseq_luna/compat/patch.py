"""The form of a patch: a probe for one fault, and its fix."""

from abc import ABC, abstractmethod


class Patch(ABC):
    """A fix for one fault of the installed fairseq, or of fairseq under the installed torch or numpy.

    The docstring of each patch describes the fault, the versions of fairseq that have it, and the fix. Versions are not
    compared, because fairseq installed from its repository has other numbers: the probe looks for the fault itself.
    """

    name: str  # as ``fairseq-luna info`` and docs/troubleshooting.md call it
    summary: str  # the fault and the behavior with the patch, in one line

    @abstractmethod
    def is_needed(self) -> bool:
        """Probe for the fault. A probe draws no random numbers, logs nothing and leaves no trace in the process."""

    @abstractmethod
    def apply(self) -> None:
        """Fix the fault in this process."""

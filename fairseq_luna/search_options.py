"""Checks of the numbers that translating takes, for trained and for exported models."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from .usage_error import UsageError

COUNTS = ("beam", "max_tokens", "max_source_positions", "buffer_size", "threads")
NUMBERS = ("lenpen", "max_len_a", "max_len_b", "min_len", "unkpen", "temperature")


def check_numbers(options: Mapping[str, Any]) -> None:
    """Check every number among ``options``.

    Raises:
        UsageError: one is no number or not finite, a count is not a whole number of 1 or more, or a temperature is not
            above 0.
    """
    for name, value in options.items():
        if value is None:
            continue
        if name in COUNTS and not (_is(Integral, value) and int(value) >= 1):
            raise UsageError(f"{name} {value}: must be a whole number of 1 or more")
        if name in NUMBERS and not _is(Real, value):
            raise UsageError(f"{name} {value}: must be a number")
        if isinstance(value, Real) and not math.isfinite(value):
            raise UsageError(f"{name} {value}: must be a finite number")
        if name == "temperature" and not value > 0:
            raise UsageError(f"{name} {value}: must be above 0")


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)

"""Arguments that are one of some words."""

from ..usage_error import ArgumentError


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise UsageError if ``value``, of the argument called ``name``, is not one of ``choices``."""
    if value not in choices:
        raise ArgumentError(name, value, f"choose {', '.join(choices[:-1])} or {choices[-1]}")

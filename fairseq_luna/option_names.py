"""Unknown keyword arguments: a TypeError that suggests the nearest name, as Python does from 3.13 on."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

from .usage_error import UsageError

P = ParamSpec("P")
R = TypeVar("R")


class UnknownOption(UsageError, TypeError):
    """A keyword argument that a function does not have, or that would have no effect."""


def unknown_option(function: str, name: str, known: Iterable[str], elsewhere: Mapping[str, str] = {}) -> UnknownOption:
    """The error for the argument ``name`` of ``function``.

    Args:
        known: names of the function's arguments; the nearest ones are suggested.
        elsewhere: advice by name, for options that other functions have.
    """
    if name in elsewhere:
        return UnknownOption(f"{function}() has no option {name}: {elsewhere[name]}")
    known = sorted(known)
    # Names with a word in common are as near as those that are spelled alike.
    near = get_close_matches(name, known, cutoff=0.6) or [
        each for each in known if set(_words(each)) & set(_words(name))
    ]
    advice = f"did you mean {' or '.join(near[:3])}?" if near else f"the options are {', '.join(known)}"
    return UnknownOption(f"{function}() has no option {name}; {advice}")


def _words(name: str) -> list[str]:
    return name.split("_")


def checks_names(elsewhere: Mapping[str, str] = {}) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that has no ``**options``, so that a keyword it does not have is an :class:`UnknownOption`.

    The signature stays what it is, for ``help``, editors and type checkers.

    Args:
        elsewhere: of :func:`unknown_option`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = [name for name in inspect.signature(function).parameters if name != "self"]

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in known:
                    raise unknown_option(function.__name__, name, known, elsewhere)
            return function(*args, **options)

        return call

    return decorate

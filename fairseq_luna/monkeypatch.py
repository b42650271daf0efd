"""Replacing a function of fairseq by a function of this package."""

import functools
from collections.abc import Callable
from typing import Any


def wrap_method(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace ``owner.name`` by the decorated function, which gets the original as its first argument."""

    def replace(replacement: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            return replacement(original, *args, **kwargs)

        setattr(owner, name, call)

    return replace

"""How a function of this package is put in the place of one of fairseq's."""

import functools
from collections.abc import Callable
from typing import Any


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Decorate the function that ``owner.name`` calls from now on, with the function that was there before first."""

    def replace(replacement: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            return replacement(original, *args, **kwargs)

        setattr(owner, name, call)

    return replace

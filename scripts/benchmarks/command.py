"""What a subcommand is made of, and how it says no."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# One measured system at one length: what the JSON holds. A value that was not measured is None.
Row = dict[str, Any]


class CommandError(Exception):
    """Flags that cannot be measured with, or a system that must not be; one line says which and what to do."""


class Column(NamedTuple):
    """A column of the printed table."""

    heading: str
    cell: Callable[[Row], str]


class Panel(NamedTuple):
    """A curve for every system, against the length."""

    key: str
    label: str


class Command(NamedTuple):
    """A subcommand."""

    help: str
    add_arguments: Callable[[ArgumentParser], None]
    check: Callable[[Namespace], None]  # raises CommandError
    title: Callable[[Namespace], str]
    rows: Callable[[Namespace], Iterator[Row]]
    columns: Callable[[Namespace], list[Column]]
    panels: tuple[Panel, ...]
    quick: Mapping[str, object]  # what --quick has in place of the flags' defaults

"""The parts of a subcommand."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# One measured system at one length, as the JSON has it. A value that could not be measured is None.
Row = dict[str, Any]


class Column(NamedTuple):
    """A column of the printed table."""

    heading: str
    cell: Callable[[Row], str]


class Panel(NamedTuple):
    """A curve for each system against the length."""

    key: str
    label: str


class Command(NamedTuple):
    """A subcommand."""

    help: str
    description: str | None
    add_arguments: Callable[[ArgumentParser], None]
    check: Callable[[Namespace], None]  # raises CommandError
    title: Callable[[Namespace], str]
    rows: Callable[[Namespace], Iterator[Row]]
    columns: Callable[[Namespace], list[Column]]
    quick: Mapping[str, object]  # the defaults with --quick
    panels: tuple[Panel, ...] = ()

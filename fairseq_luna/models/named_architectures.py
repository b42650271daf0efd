"""Named architectures: each sets only what differs from its model's defaults; the command line overrides it."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from fairseq.models import register_model_architecture

Settings = dict[str, Any]


def register_architectures(model: str, architectures: Mapping[str, Settings]) -> None:
    """Register each name of ``architectures`` for ``--arch``, as ``model`` with its settings."""
    for name, settings in architectures.items():
        register_model_architecture(model, name)(filling_in(settings))


def filling_in(settings: Settings) -> Callable[[Namespace], None]:
    """What fairseq calls to set ``settings`` where the command line is silent."""

    def fill_in(args: Namespace) -> None:
        for name, value in settings.items():
            if not hasattr(args, name):
                setattr(args, name, value)

    return fill_in

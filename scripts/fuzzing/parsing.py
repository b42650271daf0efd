"""A command line to fairseq's config, without composing all of it by hydra anew.

fairseq composes the config from its command line in a quarter of a second, many times what such a training takes.
Here that is done once for each choice of parts; the values are then set by hydra's own function.
"""

import copy
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from fairseq import options
from fairseq.dataclass import utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

_compose = utils.compose

# What was composed for a choice of parts, and the values it was composed with.
_composed: dict[tuple[str, ...], tuple[frozenset[str], DictConfig]] = {}


def parse(arguments: Sequence[str], *, quickly: bool = True) -> DictConfig:
    """What fairseq-train makes of ``arguments``; its errors, and SystemExit where argparse refuses them."""
    given = options.parse_args_and_arch(options.get_training_parser(), input_args=list(arguments))
    with _quick_composing() if quickly else nullcontext():
        cfg = convert_namespace_to_omegaconf(given)
    if cfg.common.bf16:  # as fairseq-train does with this package, on its way to the trainer
        cfg.common.tpu = False
    return cfg


@contextmanager
def _quick_composing() -> Iterator[None]:
    utils.compose = _quick_compose
    try:
        yield
    finally:
        utils.compose = _compose


def _quick_compose(config_name: str, overrides: Sequence[str], **options: Any) -> DictConfig:
    parts = tuple(override for override in overrides if "." not in override.split("=")[0])
    if parts not in _composed:
        _composed[parts] = frozenset(overrides), _compose(config_name, overrides=list(overrides), **options)
    set_before, composed = _composed[parts]
    composed = copy.deepcopy(composed)
    # Every call names every value, so that those which differ are all that must be set.
    ConfigLoaderImpl._apply_overrides_to_config([_parsed(one) for one in overrides if one not in set_before], composed)
    return composed


@functools.lru_cache(maxsize=10_000)
def _parsed(override: str) -> Any:
    [parsed] = OverridesParser.create().parse_overrides([override])
    return parsed

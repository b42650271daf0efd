"""Parsing a command line to fairseq's config, faster than fairseq.

fairseq composes the config with hydra, which takes a quarter of a second, longer than the training. Here it is composed
once for each choice of parts; the values are then set by hydra's own function.
"""

import copy
import functools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from fairseq import options
from fairseq.dataclass import utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

_compose = utils.compose

# For each choice of parts, the composed config and the overrides it was composed with.
_composed: dict[tuple[str, ...], tuple[frozenset[str], DictConfig]] = {}


def parse(arguments: Sequence[str], *, quickly: bool = True) -> DictConfig:
    """The config of fairseq-train for ``arguments``; raises its errors, and SystemExit if argparse refuses them."""
    given = options.parse_args_and_arch(options.get_training_parser(), input_args=list(arguments))
    with patch.object(utils, "compose", _quick_compose) if quickly else nullcontext():
        cfg = convert_namespace_to_omegaconf(given)
    if cfg.common.bf16:  # as this package's patch does in fairseq-train
        cfg.common.tpu = False
    return cfg


def _quick_compose(config_name: str, overrides: Sequence[str], **options: Any) -> DictConfig:
    parts = tuple(override for override in overrides if "." not in override.split("=")[0])
    if parts not in _composed:
        _composed[parts] = frozenset(overrides), _compose(config_name, overrides=list(overrides), **options)
    set_before, composed = _composed[parts]
    composed = copy.deepcopy(composed)
    # Every call names all values, so that only the differing ones need to be set.
    ConfigLoaderImpl._apply_overrides_to_config([_parsed(one) for one in overrides if one not in set_before], composed)
    return composed


@functools.lru_cache(maxsize=10_000)
def _parsed(override: str) -> Any:
    [parsed] = OverridesParser.create().parse_overrides([override])
    return parsed

"""Parsing a command line to fairseq's config, faster than fairseq.

fairseq composes the config with hydra, which takes longer than a small training. Here each part of a config, such as an
optimizer, is composed once; the values are then set by hydra's own function. Where hydra composes, it does not copy the
default configs of all of fairseq's classes before.
"""

import copy
import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from fairseq import options
from fairseq.dataclass import utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, Node

_compose = utils.compose

# A whole config, and each choice of a part such as "optimizer=adam": as composed, with the overrides set in it.
_whole: list[tuple[frozenset[str], DictConfig]] = []
_parts: dict[str, tuple[frozenset[str], Node]] = {}


def without_copies_of_sources() -> AbstractContextManager[object]:
    """hydra copies its sources before each composition, and then sets the list of them alone."""
    return patch("hydra._internal.config_repository.copy", SimpleNamespace(deepcopy=copy.copy), create=True)


def parse(arguments: Sequence[str], *, quickly: bool = True) -> DictConfig:
    """The config of fairseq-train for ``arguments``; raises its errors, and SystemExit if argparse refuses them."""
    given = options.parse_args_and_arch(options.get_training_parser(), input_args=list(arguments))
    with patch.object(utils, "compose", quick_compose) if quickly else nullcontext():
        cfg = convert_namespace_to_omegaconf(given)
    if cfg.common.bf16:  # as this package's patch does in fairseq-train
        cfg.common.tpu = False
    return cfg


def quick_compose(config_name: str, overrides: Sequence[str], **options: Any) -> DictConfig:
    """fairseq's ``compose``: the config ``config_name`` with ``overrides``."""
    choices = {override.split("=")[0]: override for override in overrides if "." not in override.split("=")[0]}
    if not _whole or not set(choices.values()) <= _parts.keys():
        with without_copies_of_sources():
            composed = _compose(config_name, overrides=list(overrides), **options)
        if not _whole:
            _whole.append((frozenset(overrides), composed))
        for part, choice in choices.items():
            _parts[choice] = frozenset(overrides), composed._get_node(part)
    set_before, composed = _whole[0]
    composed, set_in = copy.deepcopy(composed), {}
    for part, choice in choices.items():
        set_in[part], node = _parts[choice]
        node = copy.deepcopy(node)
        node._set_parent(composed)
        composed._content[part] = node  # omegaconf 2.0 refuses to assign a node of another class
    # Every call names all values, so that only the differing ones need to be set.
    values = [override for override in overrides if override not in choices.values()]
    differing = [one for one in values if one not in set_in.get(one.split(".")[0], set_before)]
    ConfigLoaderImpl._apply_overrides_to_config([_parsed(one) for one in differing], composed)
    return composed


@functools.lru_cache(maxsize=10_000)
def _parsed(override: str) -> Any:
    [parsed] = OverridesParser.create().parse_overrides([override])
    return parsed

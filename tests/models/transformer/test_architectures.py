"""The same model from ``--arch NAME`` and from ``_name: NAME`` in hydra's YAML, for every registered name."""

import logging
from argparse import Namespace

import pytest
import torch
import yaml
from fairseq import models, options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.models.roberta import model as roberta
from fairseq_cli import hydra_train
from omegaconf import OmegaConf

from recipes.model import count_parameters
from recipes.settings import parsed
from support import translation_task

# hydra announces future strictness for every config.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

NAMES = [name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("fairseq_luna.")]
EVERY_NAME = pytest.mark.parametrize("name", NAMES)


def parts_of(name):
    """A task that trains it, and the task's criterion."""
    reads = "roberta" in name or "classifier" in name
    return ("sentence_prediction",) * 2 if reads else ("translation", "cross_entropy")


def family_of(name):
    """The model's own name."""
    config = ARCH_MODEL_REGISTRY[name].__dataclass
    return next(family for family, found in MODEL_DATACLASS_REGISTRY.items() if found is config)


def preset_of(name):
    """What the architecture sets."""
    preset = Namespace()
    ARCH_CONFIG_REGISTRY[name](preset)
    return vars(preset)


def base_values(name):
    """The values that its model has by default for what the architecture sets."""
    defaults = MODEL_DATACLASS_REGISTRY[family_of(name)]()
    return {key: getattr(defaults, key) for key in preset_of(name)}


def from_flags(name, *flags):
    """The config that fairseq-train has for these flags."""
    task, criterion = parts_of(name)
    arguments = ["data", f"--task={task}", f"--criterion={criterion}", f"--arch={name}", *flags]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))
    add_defaults(cfg)
    return cfg


def yaml_of(name, **keys):
    """What a YAML with these ``keys`` of the model says."""
    task, criterion = parts_of(name)
    return {
        "task": {"_name": task, "data": "data"},
        "criterion": {"_name": criterion},
        "model": {"_name": name, **keys},
    }


def from_yaml(name, **keys):
    """The config that fairseq-hydra-train has for it."""
    cfg = OmegaConf.merge(OmegaConf.structured(FairseqConfig), yaml_of(name, **keys))
    add_defaults(cfg)
    return cfg


def plain(cfg, name=None):
    """The model's settings, under its architecture's or another ``name``."""
    settings = OmegaConf.to_container(cfg.model, resolve=True, enum_to_str=True)
    return {**settings, "_name": name or settings["_name"]}


def parameters(model, **options):
    """The number of parameters of the model that fairseq builds from these settings."""
    task = translation_task()
    task.max_positions = lambda: 64
    with pytest.MonkeyPatch.context() as patch, torch.device("meta"):
        patch.setattr(roberta, "init_bert_params", lambda module: None)  # it draws on the CPU
        return count_parameters(models.build_model(model, task, **options))


@EVERY_NAME
def test_a_yaml_gives_the_model_of_the_command_line(name):
    expected, cfg = from_flags(name), from_yaml(name)
    assert plain(cfg) == plain(expected)
    count = parameters(expected.model)
    assert parameters(cfg.model) == count
    assert parameters(OmegaConf.create(plain(cfg)), from_checkpoint=True) == count


@EVERY_NAME
def test_a_given_key_wins_over_the_architecture_even_if_it_is_the_models_default(name):
    family, given = family_of(name), base_values(name)
    expected = from_yaml(family)
    cfg = from_yaml(name, **given)
    assert plain(cfg, family) == plain(expected)
    count = parameters(expected.model)
    assert parameters(cfg.model) == parameters(OmegaConf.create(plain(cfg)), from_checkpoint=True) == count


def test_hydras_command_line_wins_over_the_yaml_and_both_over_the_architecture(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "# @package _group_\n" + yaml.safe_dump(yaml_of("luna_tiny", encoder_layers=6, decoder_layers=5))
    )
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    overrides = ("model.decoder_layers=6", "+model.projection_length=32")
    try:
        arguments = ("fairseq-hydra-train", f"--config-dir={tmp_path}", "--config-name=a", *overrides)
        cfg = parsed(hydra_train.cli_main, arguments)
    finally:  # hydra configures the root logger
        root.handlers[:] = handlers
        root.setLevel(level)
    flags = ("--encoder-layers=6", "--decoder-layers=6", "--projection-length=32")
    assert plain(cfg) == plain(from_flags("luna_tiny", *flags))
    assert cfg.model.encoder_embed_dim == 128


def test_a_flag_turns_on_what_the_architecture_turns_on_too():
    assert from_flags("luna_16_untied", "--untie-luna-kv").model.untie_luna_kv

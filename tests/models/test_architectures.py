"""Every registered name: the same model by ``--arch NAME`` and by ``_name: NAME`` in hydra's YAML, and its sizes."""

import pickle
from argparse import Namespace

import pytest
import torch
import yaml
from fairseq import models
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.models.roberta import model as roberta
from omegaconf import OmegaConf

from fairseq_luna.models.luna.config import LunaConfig, luna_config
from fairseq_luna.optim.fairseq_apollo import FairseqApolloConfig
from fairseq_luna.optim.milestone_lr import MilestoneLRScheduleConfig
from harness.parsing import parse
from recipes import parsed
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
    """The settings of the architecture."""
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
    cfg = parse(arguments)
    add_defaults(cfg)
    return cfg


def yaml_of(name, **keys):
    """The settings of a YAML with these ``keys`` of the model."""
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


def parameters(model, words=40, longest=64, **options):
    """The number of parameters of the model that fairseq builds from these settings."""
    task = translation_task(words)
    task.max_positions = lambda: longest
    with pytest.MonkeyPatch.context() as patch, torch.device("meta"):
        patch.setattr(roberta, "init_bert_params", lambda module: None)  # it draws on the CPU
        return sum(x.numel() for x in models.build_model(model, task, **options).parameters())


@EVERY_NAME
def test_a_yaml_gives_the_model_of_the_command_line(name):
    expected, cfg = from_flags(name), from_yaml(name)
    assert preset_of(name).items() <= plain(cfg).items()
    assert plain(cfg) == plain(expected)
    assert parameters(cfg.model) == parameters(OmegaConf.create(plain(cfg)), from_checkpoint=True)


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
    overrides = ("model.decoder_layers=6", "+model.projection_length=32")
    cfg = parsed(f"--config-dir={tmp_path}", "--config-name=a", *overrides)
    flags = ("--encoder-layers=6", "--decoder-layers=6", "--projection-length=32")
    assert plain(cfg) == plain(from_flags("luna_tiny", *flags))
    found = luna_config(cfg.model)
    assert (found.encoder.layers, found.decoder.layers, found.projection_length) == (6, 6, 32)
    assert found.encoder.embed_dim == found.decoder.embed_dim == 128


def test_a_flag_turns_on_what_the_architecture_turns_on_too():
    assert from_flags("luna_16_untied", "--untie-luna-kv").model.untie_luna_kv


# Millions, as the papers say: for Luna with the vocabulary of its WMT14, for RoBERTa with that of the published one,
# whose base size has 124.7.
MILLIONS = {
    **{"luna_32": 69.7, "luna_16": 69.6, "luna_32_untied": 77.6, "luna_16_untied": 77.5, "luna_base": 69.7},
    **{"luna_roberta_tiny": 7.2, "mixed_roberta_tiny": 7.1, "luna_roberta_base": 131.9, "mixed_roberta_base": 124.7},
    **{"luna_roberta_base_untied": 146.1, "luna_base_untied_512": 146.1},
}


@pytest.mark.parametrize(("name", "millions"), MILLIONS.items())
def test_the_numbers_of_parameters_are_the_papers(name, millions):
    if "roberta" in name or name.endswith("512"):
        count, error = parameters(from_flags(name).model, words=50_261, longest=512), 0.05
    else:
        count, error = parameters(from_flags(name, "--share-all-embeddings").model, words=40_620), 0.1
    assert count / 1e6 == pytest.approx(millions, abs=error)


# Embeddings, feed-forward, layers, heads, slots.
SIZES = {"luna_big": (1024, 4096, 6, 16, 32), "luna_base": (512, 2048, 6, 8, 32), "luna_tiny": (128, 256, 4, 4, 16)}
SIZES |= {"luna_iwslt_de_en": (512, 1024, 6, 4, 32)}


@pytest.mark.parametrize(("name", "sizes"), SIZES.items())
def test_sizes_of_luna(name, sizes):
    cfg = luna_config(from_flags(name).model)
    for side in (cfg.encoder, cfg.decoder):
        assert (side.embed_dim, side.ffn_embed_dim, side.layers, side.attention_heads) == sizes[:4]
        assert side.projected_attention_heads == sizes[3]
    assert cfg.projection_length == sizes[4]


def test_sizes_that_are_not_given_follow_others():
    cfg = luna_config(Namespace(encoder_embed_dim=48, encoder_ffn_embed_dim=96, encoder_attention_heads=6))
    assert (cfg.decoder.embed_dim, cfg.decoder.ffn_embed_dim) == (48, 96)
    assert (cfg.decoder.input_dim, cfg.decoder.output_dim) == (48, 48)
    assert (cfg.encoder.projected_attention_heads, cfg.decoder.projected_attention_heads) == (6, 8)
    cfg = luna_config(Namespace(decoder_ffn_embed_dim=24, decoder_output_dim=12, encoder_projected_attention_heads=1))
    assert (cfg.decoder.ffn_embed_dim, cfg.decoder.output_dim, cfg.encoder.projected_attention_heads) == (24, 12, 1)
    old = luna_config(OmegaConf.create({"encoder_layers": 3, "_name": "luna_tiny"}))  # from before a flag was there
    assert (old.encoder.layers, old.luna_activation) == (3, "softplus")
    assert luna_config(LunaConfig()).encoder.layers == 6  # configs share nothing


# What a process passes to another is pickled.
REGISTERED = [MODEL_DATACLASS_REGISTRY[name] for name in {*NAMES, *map(family_of, NAMES)}]
CONFIGS = [*sorted(REGISTERED, key=lambda config: config.__name__), FairseqApolloConfig, MilestoneLRScheduleConfig]
SMALL = {"encoder_embed_dim": 16, "encoder_ffn_embed_dim": 16, "encoder_layers": 1, "encoder_attention_heads": 2}
SMALL |= {"decoder_layers": 1, "decoder_attention_heads": 2, "max_positions": 30}


@pytest.mark.parametrize("config", dict.fromkeys(CONFIGS), ids=lambda config: config.__name__)
def test_every_config_can_be_pickled(config):
    assert pickle.loads(pickle.dumps(config())) == config()


# Where checkpoints that hold a config as an object look for its class.
MODULES = {
    **{"luna": "luna.config", "fastformer": "fastformer", "block": "block", "mixed": "mixed.config"},
    **{"luna_roberta": "roberta.config", "mixed_roberta": "roberta.config"},
    "block_pyramid_classifier": "block_pyramid.config",
}


@EVERY_NAME
def test_a_config_that_was_pickled_before_a_field_existed_is_read(name):
    config = MODEL_DATACLASS_REGISTRY[name]
    where = "Pyramid" if "pyramid" in name else name.title().replace("_", "")
    pickled = pickle.dumps(config(_name=name))
    assert f"fairseq_luna.models.{MODULES[family_of(name)]}".encode() in pickled
    assert f"{where}Config".encode() in pickled
    older = config.__new__(config)
    older.__dict__.update(_name=name, encoder_layers=3)
    found = pickle.loads(pickle.dumps(older))
    assert (found._name, found.encoder_layers) == (name, 3)
    assert found == config(_name=name, encoder_layers=3)  # dataclasses keep defaults in the class


@pytest.mark.parametrize("family", dict.fromkeys(map(family_of, NAMES)))
def test_a_model_from_fairseqs_config_can_be_pickled(family):
    config = MODEL_DATACLASS_REGISTRY[family](_name=family)
    for key in SMALL.keys() & vars(config).keys():
        setattr(config, key, SMALL[key])
    cfg = OmegaConf.structured(config)  # as fairseq-train has it: choices are members of an enumeration
    model = models.build_model(cfg, translation_task())
    copy = pickle.loads(pickle.dumps(model))
    assert all(value.equal(copy.state_dict()[key]) for key, value in model.state_dict().items())

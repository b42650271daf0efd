"""Configs and models pass to other processes, as what is pickled does."""

import pickle

import pytest
from fairseq import models
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from fairseq_luna.optim.fairseq_apollo import FairseqApolloConfig
from fairseq_luna.optim.milestone_lr import MilestoneLRScheduleConfig
from support import translation_task

NAMES = [name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("fairseq_luna.")]
CONFIGS = [MODEL_DATACLASS_REGISTRY[name] for name in NAMES] + [FairseqApolloConfig, MilestoneLRScheduleConfig]
SMALL = {"encoder_embed_dim": 16, "encoder_ffn_embed_dim": 16, "encoder_layers": 1, "encoder_attention_heads": 2}
SMALL |= {"decoder_layers": 1, "decoder_attention_heads": 2, "max_positions": 30}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_every_config_can_be_pickled(config):
    assert pickle.loads(pickle.dumps(config())) == config()


@pytest.mark.parametrize("name", NAMES)
def test_a_model_from_fairseqs_config_can_be_pickled(name):
    config = MODEL_DATACLASS_REGISTRY[name](_name=name)
    for key, value in SMALL.items():
        if hasattr(config, key):
            setattr(config, key, value)
    cfg = OmegaConf.structured(config)  # as fairseq-train has it: choices are members of an enumeration
    model = models.build_model(cfg, translation_task())
    copy = pickle.loads(pickle.dumps(model))
    assert all(value.equal(copy.state_dict()[key]) for key, value in model.state_dict().items())

"""Flags of RoBERTa with other attentions: sizes, defaults, refusals."""

from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_luna.models.roberta.config import LunaRobertaConfig, MixedRobertaConfig
from readers import build
from support import translation_task

# The vocabulary of the published RoBERTa, whose base size has 124.7M parameters with it.
VOCABULARY = 50265


def parameters(arch: str, **flags) -> int:
    args = Namespace(max_positions=512, **flags)
    ARCH_CONFIG_REGISTRY[arch](args)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, translation_task(VOCABULARY - 4))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("arch", "flags", "millions"),
    [
        ("luna_roberta_tiny", {}, 7.2),
        ("mixed_roberta_tiny", {}, 7.1),
        ("luna_roberta_base", {}, 131.9),
        ("luna_roberta_base_untied", {}, 146.1),
        ("luna_base_untied_512", {}, 146.1),
        ("mixed_roberta_base", {}, 124.7),
    ],
)
def test_sizes(arch, flags, millions):
    assert parameters(arch, **flags) / 1e6 == pytest.approx(millions, abs=0.05)


def test_the_longest_text_defaults_to_the_tasks():
    task = translation_task()
    for described in (
        {"max_positions": lambda: 30},
        {"max_positions": lambda: None, "cfg": Namespace(tokens_per_sample=30)},
    ):
        vars(task).update(described)
        model = MODEL_REGISTRY["luna_roberta"].build_model(Namespace(encoder_layers=1, encoder_embed_dim=12), task)
        assert model.max_positions() == 30


@pytest.mark.parametrize(
    ("name", "config"), [("luna_roberta", LunaRobertaConfig), ("mixed_roberta", MixedRobertaConfig)]
)
def test_hydra_sets_the_flags(name, config):
    cfg = OmegaConf.structured(config())
    cfg.encoder_layers, cfg.encoder_embed_dim, cfg.max_positions, cfg.pooling = 3, 24, 40, "mean"
    cfg.encoder_layers_to_keep = "0,2"
    model = MODEL_REGISTRY[name].build_model(cfg, translation_task())
    assert len(model.encoder.sentence_encoder.layers) == 2
    assert model.max_positions() == 40
    # fairseq's criterion reads the flags for pruning where a model has them.
    assert not hasattr(model.args, "mha_reg_scale_factor")


@pytest.mark.parametrize(
    ("variant", "flags", "message"),
    [
        ("luna", {"encoder_layers": 0}, "--encoder-layers 0: must be 1 or more"),
        ("luna", {"encoder_attention_heads": 3}, "--encoder-attention-heads 3: must be 1 or more and divide"),
        ("luna", {"encoder_projected_attention_heads": 3}, "--encoder-projected-attention-heads 3: must be"),
        ("luna", {"projection_length": 0}, "--projection-length 0: must be 1 or more"),
        ("luna", {"luna_kernel_size": 2}, "--luna-kernel-size 2: must be an odd number"),
        ("luna", {"word_dropout": 1.0}, "--word-dropout 1.0: must be at least 0 and less than 1"),
        ("luna", {"max_positions": 0}, "--max-positions 0: must be 1 or more"),
        ("luna", {"pooler_dropout": 1.0}, "--pooler-dropout 1.0: must be at least 0 and less than 1"),
        ("luna", {"dropout": -0.1}, "--dropout -0.1: must be"),
        ("luna", {"pooling": "maen"}, "--pooling maen: choose one of cls, mean, attention"),
        ("luna", {"encoder_layers_to_keep": "0,0"}, "--encoder-layers-to-keep 0,0: must be layer numbers"),
        ("luna", {"quant_noise_pq_block_size": 0}, "--quant-noise-pq-block-size 0: must be 1 or more"),
        ("mixed-softmax", {"num_slots": 4}, r"--num-slots 4: is for linformer \(encoder"),
        ("mixed-linear", {"fastformer_combine": "sum"}, "--fastformer-combine sum: is for fastformer"),
        ("mixed-linear", {"attention_kernel_size": 4}, "--attention-kernel-size 4: must be an odd number"),
    ],
)
def test_bad_values_are_refused_by_name(variant, flags, message):
    with pytest.raises(ValueError, match=message):
        build(variant, **flags)

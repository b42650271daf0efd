from argparse import Namespace

import pytest

from fairseq_luna.models.luna.config import LunaConfig, luna_config
from support import TINY, build_luna

BAD = {
    "--projection-length 0": {"projection_length": 0},
    "--word-dropout 1.5": {"word_dropout": 1.5},
    "--encoder-layers 0": {"encoder_layers": 0},
    "--decoder-layers 0": {"decoder_layers": 0},
    "--encoder-attention-heads 3": {"encoder_attention_heads": 3},
    "--decoder-attention-heads 0": {"decoder_attention_heads": 0},
    "--encoder-projected-attention-heads 5": {"encoder_projected_attention_heads": 5},
    "--decoder-projected-attention-heads 7": {"decoder_projected_attention_heads": 7},
    "--decoder-projected-attention-heads 2": {
        "decoder_projected_attention_heads": 2,
        "luna_source_attention": "softmax",
    },
    "--luna-source-attention pakced": {"luna_source_attention": "pakced"},
    "--luna-segment-bias 4": {"luna_segment_bias": 4, "luna_source_attention": "softmax"},
    "--luna-segment-bias nan": {"luna_segment_bias": float("nan")},
    "--decoder-embed-dim 64": {"decoder_embed_dim": 64},
    "--decoder-input-dim 16": {"decoder_input_dim": 16},
    "--no-cross-attention:": {"no_cross_attention": True},
    "--adaptive-input:": {"adaptive_input": True},
    "--char-inputs:": {"char_inputs": True},
    "--base-layers 2": {"base_layers": 2},
    "--encoder-xformers-att-config x": {"encoder_xformers_att_config": "x"},
    "--decoder-xformers-att-config x": {"decoder_xformers_att_config": "x"},
}


@pytest.mark.parametrize(("said", "flags"), BAD.items(), ids=[said.split()[0].strip(":-") for said in BAD])
def test_bad_values_are_refused_by_name_in_one_line(said, flags):
    with pytest.raises(ValueError) as refusal:
        build_luna(**flags)
    message = str(refusal.value)
    assert message.startswith(said)
    assert "\n" not in message
    assert len(message) > len(said) + 10, "what to do is missing"


def test_sizes_default_to_other_sizes():
    cfg = luna_config(Namespace(encoder_embed_dim=48, encoder_ffn_embed_dim=96, encoder_attention_heads=6))
    assert (cfg.decoder.embed_dim, cfg.decoder.ffn_embed_dim) == (48, 96)
    assert (cfg.decoder.input_dim, cfg.decoder.output_dim) == (48, 48)
    assert cfg.encoder.projected_attention_heads == 6
    assert cfg.decoder.projected_attention_heads == cfg.decoder.attention_heads == 8


def test_given_sizes_are_used():
    given = {"decoder_ffn_embed_dim": 24, "decoder_output_dim": 12, "encoder_projected_attention_heads": 1}
    given["share_all_embeddings"] = False
    cfg = luna_config(Namespace(**{**TINY, **given}))
    assert (cfg.decoder.ffn_embed_dim, cfg.decoder.output_dim) == (24, 12)
    assert cfg.encoder.projected_attention_heads == 1


def test_defaults_are_the_papers_base_model():
    cfg = luna_config(LunaConfig())
    assert (cfg.encoder.layers, cfg.encoder.embed_dim, cfg.encoder.ffn_embed_dim) == (6, 512, 2048)
    assert (cfg.projection_length, cfg.untie_luna_kv, cfg.luna_activation) == (32, False, "softplus")


def test_two_configs_share_nothing():
    first, second = luna_config(Namespace(**TINY)), luna_config(LunaConfig())
    assert first.encoder is not second.encoder
    assert second.encoder.embed_dim == 512


def test_an_old_config_without_a_flag_can_be_built():
    from omegaconf import OmegaConf

    cfg = luna_config(OmegaConf.create({"encoder_layers": 3, "_name": "luna_tiny"}))
    assert (cfg.encoder.layers, cfg.luna_activation) == (3, "softplus")

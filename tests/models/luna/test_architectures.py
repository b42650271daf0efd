from argparse import Namespace

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_luna.models.luna import ARCHITECTURES, LunaModel
from fairseq_luna.models.luna.config import luna_config
from support import translation_task


def parse(*flags):
    """The model's config as fairseq-train has it, by its real parser."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["no-data", "--arch", *flags])
    return convert_namespace_to_omegaconf(args).model


def build(vocabulary, *flags):
    return LunaModel.build_model(parse(*flags), translation_task(vocabulary - 4))


@pytest.mark.parametrize("arch", ["luna", *ARCHITECTURES])
def test_is_registered_and_parses(arch):
    assert ARCH_MODEL_REGISTRY[arch] is LunaModel
    cfg = parse(arch)
    assert cfg._name == arch
    nested = luna_config(cfg)
    for name, value in ARCHITECTURES.get(arch, {}).items():
        assert getattr(nested, name) == value


@pytest.mark.parametrize(
    ("arch", "millions"),
    [("luna_32", 69.7), ("luna_16", 69.6), ("luna_32_untied", 77.6), ("luna_16_untied", 77.5), ("luna_base", 69.7)],
)
def test_parameter_counts_equal_the_papers(arch, millions):
    model = build(40_624, arch, "--share-all-embeddings")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count / 1e6 == pytest.approx(millions, abs=0.1)


@pytest.mark.parametrize(
    ("arch", "sizes"),
    {
        "luna_tiny": (128, 256, 4, 4, 4, 16),
        "luna_base_untied": (512, 2048, 6, 6, 8, 32),
        "luna_big": (1024, 4096, 6, 6, 16, 32),
        "luna_iwslt_de_en": (512, 1024, 6, 6, 4, 32),
    }.items(),
)
def test_sizes(arch, sizes):
    cfg = luna_config(parse(arch))
    for side in (cfg.encoder, cfg.decoder):
        assert (side.embed_dim, side.ffn_embed_dim, side.layers, side.attention_heads) == (
            sizes[0],
            sizes[1],
            sizes[2],
            sizes[4],
        )
        assert side.projected_attention_heads == sizes[4]
    assert cfg.projection_length == sizes[5]


def test_the_command_line_overrides_the_architecture():
    cfg = luna_config(
        parse("luna_tiny", "--projection-length", "5", "--encoder-embed-dim", "64", "--encoder-layers", "1")
    )
    assert (cfg.projection_length, cfg.encoder.embed_dim, cfg.decoder.embed_dim, cfg.encoder.layers) == (5, 64, 64, 1)
    assert cfg.decoder.layers == 4


def test_every_flag_has_a_help_text():
    parser = options.get_training_parser()
    args = ["no-data", "--arch", "luna"]
    namespace, _ = parser.parse_known_args(args)
    assert isinstance(namespace, Namespace)
    group = parser.add_argument_group("luna")
    LunaModel.add_args(group)
    own = {action.option_strings[0]: action.help for action in group._group_actions}
    for flag in (
        "--projection-length",
        "--fix-projection-length",
        "--untie-luna-kv",
        "--encoder-projected-attention-heads",
        "--decoder-projected-attention-heads",
        "--word-dropout",
        "--luna-activation",
        "--luna-source-attention",
    ):
        assert own[flag]

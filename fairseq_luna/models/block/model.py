"""The block attention encoder-decoder, registered with fairseq as ``block``."""

from typing import Any

from fairseq.models import register_model
from torch import nn

from ...modules import BlockAttention, BlockCausalAttention
from ..flat_model import FlatConfigModel
from ..self_attention import SelfAttentionDecoder, SelfAttentionEncoder
from .config import BlockConfig, block_config


def attention_options(cfg: Any, side: Any) -> dict[str, Any]:
    """Constructor arguments that both sides' self-attention has."""
    return {
        "embed_dim": side.embed_dim,
        "num_heads": side.attention_heads,
        "share_levels": cfg.share_block_levels,
        "unordered": str(cfg.unordered_blocks),
        "kernel_size": cfg.block_kernel_size,
        "dropout": cfg.attention_dropout,
        "q_noise": cfg.quant_noise.pq,
        "qn_block_size": cfg.quant_noise.pq_block_size,
    }


class BlockEncoder(SelfAttentionEncoder):
    def build_self_attention(self, cfg: Any) -> nn.Module:
        options = attention_options(cfg, cfg.encoder)
        return BlockAttention(num_blocks=cfg.num_blocks, random_blocks=cfg.random_blocks, **options)


class BlockDecoder(SelfAttentionDecoder):
    def build_self_attention(self, cfg: Any) -> nn.Module:
        return BlockCausalAttention(block_size=cfg.decoder.block_size, **attention_options(cfg, cfg.decoder))


@register_model("block", dataclass=BlockConfig)
class BlockModel(FlatConfigModel):
    """Block attention in encoder and decoder; the decoder attends to the source as fairseq's does."""

    @staticmethod
    def nested_config(cfg: Any) -> Any:
        return block_config(cfg)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> BlockEncoder:
        return BlockEncoder(cfg, src_dict, embed_tokens, share_layers=cfg.share_block_layers)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> BlockDecoder:
        return BlockDecoder(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention, share_layers=cfg.share_block_layers)

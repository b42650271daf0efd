"""The Fastformer encoder-decoder, registered with fairseq as ``fastformer``."""

from typing import Any

from fairseq.models import register_model
from torch import nn

from ...modules import FastformerAttention, FastformerCausalAttention
from ..flat_model import FlatConfigModel
from ..self_attention import SelfAttentionDecoder, SelfAttentionEncoder
from .config import FastformerConfig, fastformer_config


def attention_options(cfg: Any, side: Any) -> dict[str, Any]:
    """Constructor arguments of one side's self-attention."""
    return {
        "embed_dim": side.embed_dim,
        "num_heads": side.attention_heads,
        "combine": str(cfg.fastformer_combine),
        "residual": str(cfg.fastformer_residual),
        "share": str(cfg.fastformer_share),
        "kernel_size": cfg.fastformer_kernel_size,
        "dropout": cfg.attention_dropout,
        "q_noise": cfg.quant_noise.pq,
        "qn_block_size": cfg.quant_noise.pq_block_size,
    }


class FastformerEncoder(SelfAttentionEncoder):
    def build_self_attention(self, cfg: Any) -> nn.Module:
        return FastformerAttention(**attention_options(cfg, cfg.encoder))


class FastformerDecoder(SelfAttentionDecoder):
    def build_self_attention(self, cfg: Any) -> nn.Module:
        return FastformerCausalAttention(**attention_options(cfg, cfg.decoder))


@register_model("fastformer", dataclass=FastformerConfig)
class FastformerModel(FlatConfigModel):
    """Fastformer (arXiv 2108.09084) in encoder and decoder; the decoder attends to the source as fairseq's does."""

    @staticmethod
    def nested_config(cfg: Any) -> Any:
        return fastformer_config(cfg)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> FastformerEncoder:
        return FastformerEncoder(cfg, src_dict, embed_tokens, share_layers=cfg.fastformer_share_layers)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> FastformerDecoder:
        return FastformerDecoder(
            cfg, tgt_dict, embed_tokens, cfg.no_cross_attention, share_layers=cfg.fastformer_share_layers
        )

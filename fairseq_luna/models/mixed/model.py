"""The encoder-decoder whose attentions are chosen by name, registered with fairseq as ``mixed``."""

from typing import Any

from fairseq.models import register_model
from torch import nn

from ..shared.architectures import register_architectures
from ..shared.decoder import SelfAttentionDecoder
from ..shared.encoder import SelfAttentionEncoder
from ..shared.model import FlatConfigModel
from .chosen_attentions import build_for_stack, chosen_attention
from .config import ARCHITECTURES, MixedConfig, mixed_config


@register_model("mixed", dataclass=MixedConfig)
class MixedModel(FlatConfigModel):
    """fairseq's transformer with other attentions in the encoder, in the decoder and between them.

    With softmax attention in all three places it is fairseq's transformer, with the same parameters.
    """

    nested_config = staticmethod(mixed_config)

    @staticmethod
    def alignment_refusal(cfg: Any) -> str | None:
        unaligned = chosen_attention(cfg, "source").unaligned
        return f"with --source-attention {cfg.source_attention} {unaligned}" if unaligned else None

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> SelfAttentionEncoder:
        return SelfAttentionEncoder(cfg, src_dict, embed_tokens, build_self_attention=build_for_stack("encoder"))

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> SelfAttentionDecoder:
        return SelfAttentionDecoder(
            *(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention),
            build_self_attention=build_for_stack("decoder"),
            build_source_attention=build_for_stack("source"),
        )


register_architectures("mixed", ARCHITECTURES)

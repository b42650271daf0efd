"""The Luna encoder-decoder, registered with fairseq as ``luna``, and its named architectures."""

from typing import Any

from fairseq.models import register_model
from torch import Tensor, nn

from ..shared.architectures import register_architectures
from ..shared.model import FlatConfigModel
from .checkpoint_names import convert_state_dict, drop_last_packed_norm, match_position_buffers
from .config import ARCHITECTURES, LunaConfig, luna_config
from .decoder import LunaDecoder
from .encoder import LunaEncoder


@register_model("luna", dataclass=LunaConfig)
class LunaModel(FlatConfigModel):
    """Luna (arXiv 2106.01540): fairseq's transformer with attention linear in the length.

    Flags of fairseq's transformer keep their meaning or are refused; :mod:`.config` adds Luna's own.
    """

    nested_config = staticmethod(luna_config)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> LunaEncoder:
        return LunaEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> LunaDecoder:
        return LunaDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Convert a checkpoint of the authors' code, or of another fairseq version, in place."""
        convert_state_dict(state_dict)
        if not self.cfg.decoder.normalize_before:
            drop_last_packed_norm(state_dict, self.decoder.num_layers - 1)
        super().upgrade_state_dict_named(state_dict, name)
        match_position_buffers(state_dict, self.state_dict())


register_architectures("luna", ARCHITECTURES)

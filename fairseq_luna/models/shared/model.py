"""An encoder-decoder that fairseq builds from a flat config."""

from functools import partial
from typing import Any, ClassVar

from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor, nn

from ...modules.declaration import Attention
from ...usage_error import UsageError, flag
from .attention_building import BuildAttention, Sharing, all_children, build_attention
from .compiled_layers import CompiledLayersMixin
from .config import checked_config
from .decoder import SelfAttentionDecoder
from .encoder import SelfAttentionEncoder
from .flag_checks import REFUSED_OUTSIDE_LUNA, check_trained_alignment
from .state_dict_loading import LayersToKeepMixin
from .translator import TorchTranslator


class FlatConfigModel(CompiledLayersMixin, LayersToKeepMixin, TransformerModelBase):
    """fairseq's transformer model, built from a flat config (see :mod:`.config`).

    A subclass has a class or static method ``nested_config(cfg)``, which returns the checked nested config, and builds
    its encoder and decoder.
    """

    # It adds the flat config that was registered; TransformerModelBase's adds its nested one.
    add_args: Any = classmethod(BaseFairseqModel.add_args.__func__)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "FlatConfigModel":
        """Build the model from the flat config of the command line, of hydra or of a checkpoint."""
        nested = cls.nested_config(cfg)
        trains_alignment = getattr(getattr(task, "cfg", None), "load_alignments", False)
        if trains_alignment:
            check_trained_alignment(nested, cls.alignment_refusal(nested))
        model = super().build_model(nested, task)
        model.decoder.need_attn = trains_alignment
        if nested.compile_layers:
            model.compile_layers_in_training()
        return model

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> TorchTranslator:
        """As in fairseq; alignments can be asked for later. :func:`fairseq_luna.load` finds more by itself."""
        hub = super().from_pretrained(*args, **kwargs)
        return TorchTranslator(hub.cfg, hub.task, list(hub.models))

    @staticmethod
    def alignment_refusal(cfg: Any) -> str | None:
        """Why --load-alignments cannot train the cross-attention that the nested ``cfg`` describes, or None."""
        return None

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As in fairseq, but without the output projection that it adds for shared embeddings.

        A model with adaptive softmax has no such parameter, and none of its checkpoints could be loaded.
        """
        super().upgrade_state_dict_named(state_dict, name)
        if self.decoder.adaptive_softmax is not None:
            state_dict.pop(f"{name}.decoder.output_projection.weight".lstrip("."), None)


class SelfAttentionModel(FlatConfigModel):
    """An encoder-decoder with other self-attentions than fairseq's transformer, and fairseq's cross-attention.

    A subclass names its flat config, the declaration of its self-attention, and the flag with which all layers of a
    side have the same projections.
    """

    config: ClassVar[type]
    attention: ClassVar[Attention]
    share_layers: ClassVar[str]

    @classmethod
    def nested_config(cls, cfg: Any) -> Any:
        return checked_config(cls.config, cfg, refused=REFUSED_OUTSIDE_LUNA)

    @classmethod
    def building(cls, cfg: Any, place: str) -> BuildAttention:
        """A function that builds the self-attention of each layer of a side.

        Raises:
            UsageError: with scalar quantization, for which fairseq would replace shared projections of one layer alone.
        """
        build = partial(build_attention, cls.attention, place=place)
        if not getattr(cfg, cls.share_layers):
            return build
        if cfg.quant_noise.scalar:
            raise UsageError(f"--quant-noise-scalar {cfg.quant_noise.scalar}: cannot go with {flag(cls.share_layers)}")
        return Sharing(build, all_children)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> SelfAttentionEncoder:
        build = cls.building(cfg, "encoder")
        return SelfAttentionEncoder(cfg, src_dict, embed_tokens, build_self_attention=build)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> SelfAttentionDecoder:
        build = cls.building(cfg, "decoder")
        return SelfAttentionDecoder(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention, build_self_attention=build)

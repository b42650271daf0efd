"""RoBERTa with Luna's or with chosen attentions, registered with fairseq as ``luna_roberta`` and ``mixed_roberta``."""

from abc import abstractmethod
from functools import partial
from typing import Any

from fairseq.models import BaseFairseqModel, register_model
from fairseq.models.roberta.model import RobertaModel
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.tasks import TASK_REGISTRY
from torch import Tensor, nn

from ..luna.encoder import LunaEncoder
from ..mixed.chosen_attentions import build_for_stack
from ..shared.architectures import register_architectures
from ..shared.compiled_layers import CompiledLayersMixin
from ..shared.encoder import SelfAttentionEncoder
from ..shared.state_dict_loading import LayersToKeepMixin
from .authors_checkpoint import convert_text_encoder
from .config import (
    LUNA_ARCHITECTURES,
    MIXED_ARCHITECTURES,
    LunaRobertaConfig,
    MixedRobertaConfig,
    luna_roberta_config,
    mixed_roberta_config,
)
from .encoder import CLASSIFYING, TextEncoder
from .head import ClassificationHead, HubInterface


class FlatRobertaModel(CompiledLayersMixin, LayersToKeepMixin, RobertaModel):
    """fairseq's RoBERTa with another encoder of sentences, built from a flat config.

    Its tasks ``masked_lm``, ``sentence_prediction``, ``sentence_ranking`` and ``commonsense_qa`` work as they are. In
    the last three the model has no output for tokens: its weights would get no gradient, which stops several processes.
    """

    def __init__(self, args: Any, encoder: TextEncoder) -> None:
        super().__init__(args, encoder)
        # fairseq initializes every linear map as BERT's. One with an initialization of its own keeps that.
        for module in encoder.modules():
            if isinstance(module, nn.Linear) and type(module).reset_parameters is not nn.Linear.reset_parameters:
                module.reset_parameters()

    @staticmethod
    @abstractmethod
    def nested_config(cfg: Any, task: Any) -> Any:
        """The checked nested config of the flat ``cfg``."""

    @staticmethod
    @abstractmethod
    def build_sentence_encoder(cfg: Any, dictionary: Any, embed_tokens: nn.Embedding) -> TransformerEncoderBase:
        """The encoder of sentences from the nested ``cfg``."""

    # It adds the flat config that was registered; RobertaModel's adds fairseq's flags.
    add_args: Any = classmethod(BaseFairseqModel.add_args.__func__)

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        """No trained model is published."""
        return {}

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "FlatRobertaModel":
        """Build the model from the flat config of the command line, of hydra or of a checkpoint."""
        nested = cls.nested_config(cfg, task)
        dictionary = task.source_dictionary
        encoder = TextEncoder(nested, dictionary, build_sentence_encoder=cls.build_sentence_encoder)
        model = cls(nested, encoder)
        if isinstance(task, tuple(TASK_REGISTRY[name] for name in CLASSIFYING if name in TASK_REGISTRY)):
            encoder.lm_head = None  # made first, so that a seed gives the other weights that it gives with it
        if nested.compile_layers:
            model.compile_layers_in_training()
        return model

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As in fairseq, but a classifier leaves out the output of the masked language model that it starts from."""
        if self.encoder.lm_head is None:
            for key in [key for key in state_dict if ".lm_head." in key]:
                del state_dict[key]
        super().upgrade_state_dict_named(state_dict, name)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> HubInterface:
        """As :meth:`fairseq.models.roberta.RobertaModel.from_pretrained`, for a checkpoint of this model."""
        loaded = super().from_pretrained(*args, **kwargs)
        return HubInterface(loaded.cfg, loaded.task, loaded.model)

    def register_classification_head(
        self, name: str, num_classes: int, inner_dim: int | None = None, **unused: Any
    ) -> None:
        """Add a classification head; called by fairseq's tasks after building the model.

        Args:
            name: of the head; an existing head with this name is replaced.
            num_classes: number of outputs.
            inner_dim: size of the hidden layer; None: the embedding size.
        """
        size = self.args.encoder.embed_dim
        self.classification_heads[name] = ClassificationHead(
            pooling=self.args.pooling,
            input_dim=size,
            inner_dim=inner_dim or size,
            num_classes=num_classes,
            activation_fn=self.args.pooler_activation_fn,
            pooler_dropout=self.args.pooler_dropout,
            q_noise=self.args.quant_noise.pq,
            qn_block_size=self.args.quant_noise.pq_block_size,
        )

    def forward(
        self, src_tokens: Tensor, *args: Any, classification_head_name: str | None = None, **kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Predict tokens, or classify texts.

        Args:
            src_tokens: ``(B, T)`` int64, padded on the right.
            classification_head_name: the head to apply; None: the output of the masked language model.
            args, kwargs: see :meth:`fairseq.models.roberta.RobertaModel.forward`.

        Returns:
            ``(B, num_classes)`` logits; or ``(B, T, V)`` logits, with ``masked_tokens (B, T)`` ``(N, V)`` for the N
            tokens where it is True, or with ``features_only`` ``(B, T, C)``; and a dictionary of ``inner_states``.
        """
        if classification_head_name is None:
            return super().forward(src_tokens, *args, **kwargs)
        features, extra = super().forward(src_tokens, *args, **{**kwargs, "features_only": True})
        padding_mask = src_tokens.eq(self.encoder.dictionary.pad())
        return self.classification_heads[classification_head_name](features, padding_mask=padding_mask), extra


@register_model("luna_roberta", dataclass=LunaRobertaConfig)
class LunaRobertaModel(FlatRobertaModel):
    """RoBERTa with Luna's attention, as in the Luna paper's experiments with masked language models."""

    nested_config = staticmethod(luna_roberta_config)
    build_sentence_encoder = staticmethod(partial(LunaEncoder, packed_is_read=False))

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As in fairseq, after converting a checkpoint of the authors' text encoders.

        A last layer that --encoder-layers-to-keep chose needs no norm of its slots.
        """
        convert_text_encoder(state_dict, self)
        super().upgrade_state_dict_named(state_dict, name)
        layers = self.encoder.sentence_encoder.layers
        # A pre-norm layer has the norm, and so has one that is all layers.
        if layers[-1].self_attn_packed_layer_norm is None:
            last = f"encoder.sentence_encoder.layers.{len(layers) - 1}.self_attn_packed_layer_norm"
            for parameter in ("weight", "bias"):
                state_dict.pop(f"{last}.{parameter}", None)


@register_model("mixed_roberta", dataclass=MixedRobertaConfig)
class MixedRobertaModel(FlatRobertaModel):
    """RoBERTa with an attention chosen by name. With softmax attention it is fairseq's, with the same parameters."""

    nested_config = staticmethod(mixed_roberta_config)

    @staticmethod
    def build_sentence_encoder(cfg: Any, dictionary: Any, embed_tokens: nn.Embedding) -> SelfAttentionEncoder:
        return SelfAttentionEncoder(cfg, dictionary, embed_tokens, build_self_attention=build_for_stack("encoder"))


register_architectures("luna_roberta", LUNA_ARCHITECTURES)
register_architectures("mixed_roberta", MIXED_ARCHITECTURES)

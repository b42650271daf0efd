"""The pyramid as a text classifier, registered with fairseq as ``block_pyramid_classifier``."""

from typing import Any

import torch
from fairseq.models import FairseqEncoderModel, register_model
from fairseq.models.roberta.model import RobertaClassificationHead
from torch import Tensor, nn

from ..shared.state_dict_loading import MismatchErrorMixin
from .config import PyramidConfig, pyramid_config
from .encoder import PyramidEncoder


@register_model("block_pyramid_classifier", dataclass=PyramidConfig)
class PyramidClassifier(MismatchErrorMixin, FairseqEncoderModel):
    """A pyramid with classification heads, for fairseq's task ``sentence_prediction``.

    Args:
        cfg: the nested config.
        encoder: returns one vector per text.
    """

    def __init__(self, cfg: Any, encoder: PyramidEncoder) -> None:
        super().__init__(encoder)
        self.args = cfg  # read by fairseq's criterion
        self.classification_heads = nn.ModuleDict()

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "PyramidClassifier":
        """Build the model from the flat config of the command line, of hydra or of a checkpoint."""
        nested = pyramid_config(cfg, task)
        return cls(nested, PyramidEncoder(nested, task.source_dictionary))

    def register_classification_head(self, name: str, num_classes: int, inner_dim: int | None = None) -> None:
        """Add a classification head with one hidden layer; called by fairseq's task after building the model.

        Args:
            name: of the head; an existing head with this name is replaced.
            num_classes: number of outputs.
            inner_dim: size of the hidden layer; None: the embedding size.
        """
        self.classification_heads[name] = RobertaClassificationHead(
            input_dim=self.encoder.output_size,
            inner_dim=inner_dim or self.args.encoder.embed_dim,
            num_classes=num_classes,
            activation_fn=self.args.pooler_activation_fn,
            pooler_dropout=self.args.pooler_dropout,
        )

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        features_only: bool = True,
        classification_head_name: str | None = None,
    ) -> tuple[Tensor, None]:
        """Classify texts.

        Args:
            src_tokens: ``(B, T)`` int64, padded anywhere.
            src_lengths: passed by fairseq and not used; lengths follow from the padding.
            features_only: passed by fairseq's criterion and not used.
            classification_head_name: the head to apply; None: return the features.

        Returns:
            ``(B, num_classes)`` logits, or ``(B, output_size)`` features; and None.
        """
        features = self.encoder(src_tokens, src_lengths)
        if classification_head_name is None:
            return features, None
        # fairseq's head reads the first vector of each text; here there is one.
        return self.classification_heads[classification_head_name](features[:, None]), None

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: dict[str, Any] | None = None
    ) -> Tensor:
        """(Log-)probabilities ``(B, num_classes)`` of :meth:`forward`'s result; ``sample`` is not used."""
        logits = net_output[0].float()
        return torch.log_softmax(logits, dim=-1) if log_probs else torch.softmax(logits, dim=-1)

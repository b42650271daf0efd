"""The pyramid as a classifier of texts, registered with fairseq as ``block_pyramid_classifier``."""

from typing import Any

import torch
from fairseq.models import FairseqEncoderModel, register_model
from fairseq.models.roberta.model import RobertaClassificationHead
from torch import Tensor, nn

from .config import PyramidConfig, pyramid_config
from .encoder import PyramidEncoder


@register_model("block_pyramid_classifier", dataclass=PyramidConfig)
class PyramidClassifier(FairseqEncoderModel):
    """A pyramid with classification heads, for fairseq's task ``sentence_prediction``.

    Args:
        cfg: the nested config.
        encoder: gives one vector for each text.
    """

    def __init__(self, cfg: Any, encoder: PyramidEncoder) -> None:
        super().__init__(encoder)
        self.args = cfg  # fairseq's criterion looks for settings of its own in it
        self.classification_heads = nn.ModuleDict()

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "PyramidClassifier":
        """Build from the flat config of the command line, of hydra or of a checkpoint."""
        nested = pyramid_config(cfg)
        return cls(nested, PyramidEncoder(nested, task.source_dictionary))

    def register_classification_head(self, name: str, num_classes: int, inner_dim: int | None = None) -> None:
        """Add a head called ``name``, a network of one hidden layer; fairseq's task does it after building.

        Args:
            name: an existing head of this name is replaced.
            num_classes: outputs.
            inner_dim: size of the hidden layer; the embedding's if None.
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
            src_lengths: what fairseq passes; the padding itself says the lengths.
            features_only: what fairseq's criterion passes to models of language; a pyramid has nothing else.
            classification_head_name: which head; None for the features themselves.

        Returns:
            ``(B, num_classes)`` logits, or ``(B, output_size)`` features; and None.
        """
        features = self.encoder(src_tokens, src_lengths)
        if classification_head_name is None:
            return features, None
        # fairseq's head reads the first of several vectors of a text; here there is one.
        return self.classification_heads[classification_head_name](features[:, None]), None

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: dict[str, Any] | None = None
    ) -> Tensor:
        """Probabilities ``(B, num_classes)`` of :meth:`forward`'s result, or their logarithms; ``sample`` is unread."""
        logits = net_output[0].float()
        return torch.log_softmax(logits, dim=-1) if log_probs else torch.softmax(logits, dim=-1)

"""The classification head: fairseq's, with a choice of what it reads of a text, and the interface that calls it."""

from typing import Any

import torch
from fairseq.models.roberta import RobertaHubInterface
from fairseq.models.roberta.model import RobertaClassificationHead
from torch import Tensor

from ...modules.attention_pooling import AttentionPooling
from ...ops.masked_softmax import masked_mean
from ...usage_error import UsageError

POOLINGS = ["cls", "mean", "attention"]


class ClassificationHead(RobertaClassificationHead):
    """fairseq's head: dropout, a hidden layer, dropout, one output for each class.

    Args:
        pooling: what it reads: "cls", the vector of the first token, as fairseq's; "mean", the mean of all vectors;
            "attention", their mean with learned weights (:class:`~fairseq_luna.modules.AttentionPooling`).
        options: of fairseq's head.

    Raises:
        UsageError: if ``pooling`` is unknown.
    """

    def __init__(self, *, pooling: str, **options: Any) -> None:
        super().__init__(**options)
        if pooling not in POOLINGS:
            raise UsageError(f"--pooling {pooling}: choose one of {', '.join(POOLINGS)}")
        self.reads = pooling
        self.pooling = AttentionPooling(embed_dim=options["input_dim"]) if pooling == "attention" else None

    def forward(self, features: Tensor, padding_mask: Tensor | None = None, **unused: Any) -> Tensor:
        """Classify texts.

        Args:
            features: ``(B, T, C)``.
            padding_mask: ``(B, T)`` bool, True = padding; None: a single text without padding.

        Returns:
            ``(B, num_classes)`` logits.

        Raises:
            UsageError: several texts without a mask, where it is needed.
        """
        return super().forward(features if self.reads == "cls" else self.pooled(features, padding_mask)[:, None])

    def pooled(self, features: Tensor, padding_mask: Tensor | None) -> Tensor:
        """The one vector of each text ``(B, C)``; arguments as in ``forward``."""
        if padding_mask is None:
            if len(features) > 1:
                raise UsageError(
                    f"--pooling {self.reads}: {len(features)} texts need a padding_mask; call the model with"
                    " classification_head_name, or load it with its own class's from_pretrained"
                )
            padding_mask = features.new_zeros(features.shape[:2]).bool()
        x = features.transpose(0, 1)
        return masked_mean(x, padding_mask) if self.pooling is None else self.pooling(x, padding_mask=padding_mask)


class HubInterface(RobertaHubInterface):
    """The result of :meth:`FlatRobertaModel.from_pretrained`, with ``encode``, ``fill_mask`` and so on.

    fairseq's own ``predict`` does not tell a head which steps are padding.
    """

    def predict(self, head: str, tokens: Tensor, return_logits: bool = False) -> Tensor:
        """Classify texts.

        Args:
            head: name of a classification head.
            tokens: ``(T,)`` or ``(B, T)`` int64, padded on the right.
            return_logits: instead of log-probabilities.

        Returns:
            ``(B, num_classes)``.

        Raises:
            UsageError: the tokens are more than the model has positions for.
        """
        tokens = torch.atleast_2d(tokens).to(self.device)
        longest = self.model.max_positions()
        if tokens.shape[1] > longest:
            raise UsageError(f"a text of {tokens.shape[1]} tokens is longer than --max-positions {longest}: shorten it")
        logits, _ = self.model(tokens, classification_head_name=head)
        return logits if return_logits else torch.log_softmax(logits, dim=-1)

"""fairseq's interface to a loaded RoBERTa, for heads that read every token."""

import torch
from fairseq.models.roberta import RobertaHubInterface
from torch import Tensor

from ...usage_error import UsageError


class HubInterface(RobertaHubInterface):
    """What :meth:`FlatRobertaModel.from_pretrained` returns: ``encode``, ``fill_mask``, ``extract_features`` and so on.

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

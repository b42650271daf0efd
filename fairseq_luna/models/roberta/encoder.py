"""fairseq's RoBERTa encoder around another encoder of sentences."""

from collections.abc import Callable
from typing import Any

from fairseq.models.roberta.model import RobertaEncoder
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from ...usage_error import UsageError

BuildEncoder = Callable[[Any, Any, nn.Embedding], TransformerEncoderBase]

# fairseq's tasks in which nothing reads the output of the masked language model.
CLASSIFYING = ("sentence_prediction", "sentence_ranking", "commonsense_qa")


class TextEncoder(RobertaEncoder):
    """fairseq's RoBERTa encoder, an encoder of sentences and the output of a masked language model.

    Args:
        cfg: the nested config.
        dictionary: of the text.
        build_sentence_encoder: called with both and the embedding.
    """

    def __init__(self, cfg: Any, dictionary: Any, *, build_sentence_encoder: BuildEncoder) -> None:
        self.build_sentence_encoder = build_sentence_encoder
        super().__init__(cfg, dictionary)

    def build_encoder(self, args: Any, dictionary: Any, embed_tokens: nn.Embedding) -> TransformerEncoderBase:
        encoder = self.build_sentence_encoder(args, dictionary, embed_tokens)
        if args.share_encoder_layers:
            for number in range(1, len(encoder.layers)):
                encoder.layers[number] = encoder.layers[0]
        return encoder

    def output_layer(self, features: Tensor, masked_tokens: Tensor | None = None, **unused: Any) -> Tensor:
        """See :meth:`fairseq.models.roberta.RobertaEncoder.output_layer`.

        Raises:
            UsageError: the model is a classifier.
        """
        if self.lm_head is None:
            raise UsageError(
                f"--task {' or '.join(CLASSIFYING)}: such a model predicts no tokens; use --task masked_lm"
            )
        return super().output_layer(features, masked_tokens=masked_tokens)

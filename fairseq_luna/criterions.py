"""``--criterion label_smoothed_cross_entropy_chunked``: fairseq's label-smoothed loss in less memory and time."""

from collections.abc import Mapping
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.models import FairseqDecoder
from torch import Tensor

from fairseq_luna.ops.label_smoothed_loss import label_smoothed_loss, most_likely_tokens
from fairseq_luna.usage_error import UsageError

NAME = "label_smoothed_cross_entropy_chunked"


@register_criterion(NAME, dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class LabelSmoothedCrossEntropyChunked(LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy``, with its flags and reports, by :func:`.label_smoothed_loss`.

    Raises:
        UsageError: for a model whose decoder's output are not the logits of a softmax, such as an adaptive one.
    """

    def compute_loss(
        self, model: Any, net_output: Any, sample: Mapping[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        logits, target = self.logits_and_target(model, net_output, sample)
        return label_smoothed_loss(logits, target, self.eps, ignored=self.padding_idx, reduce=reduce)

    def compute_accuracy(self, model: Any, net_output: Any, sample: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        logits, target = self.logits_and_target(model, net_output, sample)
        real = target.ne(self.padding_idx)
        return (most_likely_tokens(logits) == target).logical_and_(real).sum(), real.sum()

    def logits_and_target(self, model: Any, net_output: Any, sample: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """``(N, V)`` and ``(N,)``, without the first words that --ignore-prefix-size leaves out."""
        _check_decoder(model)
        logits, target = net_output[0], model.get_targets(sample, net_output)
        if self.ignore_prefix_size > 0:
            logits, target = logits[:, self.ignore_prefix_size :], target[:, self.ignore_prefix_size :]
        return logits.reshape(-1, logits.shape[-1]), target.reshape(-1)


def _check_decoder(model: Any) -> None:
    decoder = getattr(model, "decoder", None)
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise UsageError(f"--criterion {NAME} with --adaptive-softmax-cutoff, whose loss is another: use adaptive_loss")
    for name in ("get_normalized_probs", "get_normalized_probs_scriptable"):
        if getattr(getattr(decoder, name, None), "__func__", None) is not getattr(FairseqDecoder, name):
            raise UsageError(
                f"--criterion {NAME}: {type(model).__name__} has probabilities of its own: "
                "use label_smoothed_cross_entropy"
            )

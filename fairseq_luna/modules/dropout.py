"""The dropout probability that applies now, for functions that take a number instead of a module."""

from fairseq.modules.fairseq_dropout import FairseqDropout


def dropout_probability(module: FairseqDropout) -> float:
    """Return ``p`` in training, and in evaluation if the module applies dropout during inference; otherwise 0."""
    return module.p if module.training or module.apply_during_inference else 0.0

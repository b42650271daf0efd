"""Trainings whose steps cannot be recorded."""

from typing import Any

from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.optim import FairseqOptimizer
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.tasks import FairseqTask

from ..usage_error import UsageError, flag

# Their reports have no numbers of the host besides the ones that ``host_numbers`` returns.
CRITERIONS = (LabelSmoothedCrossEntropyCriterion, CrossEntropyCriterion)
OPTIMIZERS = (FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer, AMPOptimizer)

# Options by the part of fairseq's config: the values that a recorded step can have, and why not others.
SUPPORTED: dict[str, dict[str, tuple[tuple[Any, ...], str]]] = {
    "model": {
        "encoder_layerdrop": ((0,), "the host decides which layers are left out"),
        "decoder_layerdrop": ((0,), "the host decides which layers are left out"),
        "checkpoint_activations": ((False,), "the state of the random numbers is read from the device"),
        "offload_activations": ((False,), "activations are moved to the host"),
        "quant_noise_pq": ((0,), "quantization noise is untested in recorded steps"),
        "quant_noise_scalar": ((0,), "the noise has not been tried in a recorded step"),
        "base_layers": ((0,), "the host decides where tokens go"),
    },
    "criterion": {"report_accuracy": ((False,), "the number is read from the device at every step")},
    "common": {
        "tpu": ((False,), "only CUDA has graphs"),
        "model_parallel_size": ((1,), "a graph is of one device"),
        "quantization_config_path": ((None,), "it replaces modules during the training"),
    },
    "distributed_training": {
        "ddp_backend": (
            ("pytorch_ddp", "c10d", "legacy_ddp", "no_c10d"),
            "gradients are reduced after the backward pass",
        ),
        "ddp_comm_hook": (("none",), "gradients are reduced in their own dtype"),
        "broadcast_buffers": ((False,), "buffers are not exchanged"),
        "pipeline_model_parallel": ((False,), "a graph is of one device"),
    },
    "optimization": {"use_bmuf": ((False,), "it changes the parameters of each process")},
}


def check_supported(cfg: Any, task: Any, criterion: Any) -> None:
    """Refuse a training that cannot be recorded.

    Args:
        cfg: fairseq's.
        task, criterion: of the training.

    Raises:
        UsageError: names the option, its value and the reason.
    """
    for part, options in SUPPORTED.items():
        for name, (values, reason) in options.items():
            value = getattr(getattr(cfg, part), name, values[0])
            value = getattr(value, "value", value)  # of an enumeration
            if value not in values:
                shown = "" if value is True else f" {value}"
                raise UsageError(f"--record-training with {flag(name)}{shown}: {reason}; leave one of them out")
    if type(task).train_step is not FairseqTask.train_step:
        raise UsageError(f"--record-training: the task {type(task).__name__} has a training step of its own")
    if all(type(criterion).forward is not known.forward for known in CRITERIONS):
        raise UsageError(
            f"--record-training: the criterion {type(criterion).__name__} is not supported; supported are"
            " cross_entropy, label_smoothed_cross_entropy and label_smoothed_cross_entropy_chunked"
        )


def check_optimizer(optimizer: Any) -> None:
    """Raises UsageError if the ``optimizer`` does more in its backward pass than to scale the loss."""
    if all(type(optimizer).backward is not known.backward for known in OPTIMIZERS):
        raise UsageError(f"--record-training: {type(optimizer).__name__} has a backward pass of its own")


def host_numbers(criterion: Any, sample: Any) -> dict[str, Any]:
    """The numbers that a criterion of :data:`CRITERIONS` reports without computing them on the device."""
    sentences, tokens = sample["target"].size(0), sample["ntokens"]
    return {
        "ntokens": tokens,
        "nsentences": sentences,
        "sample_size": sentences if criterion.sentence_avg else tokens,
    }

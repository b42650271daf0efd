"""Options of fairseq under which Apollo would compute something else."""

from omegaconf import DictConfig, OmegaConf

from fairseq_luna.usage_error import UsageError

# {place in the config: (value, reason)}
REFUSED = {
    "distributed_training.ddp_backend": (
        "fully_sharded",
        "--ddp-backend fully_sharded splits tensors, and Apollo's norms need them whole: use legacy_ddp or "
        "pytorch_ddp (with --zero-sharding os to save memory: its workers hold whole tensors)",
    ),
    "distributed_training.use_sharded_state": (
        True,
        "--use-sharded-state, a part of --ddp-backend fully_sharded, which splits tensors, and Apollo's norms need "
        "them whole: use --zero-sharding os alone, whose workers hold whole tensors",
    ),
    "common.amp": (
        True,
        "--amp: fairseq divides the gradients by the loss scale twice, which changes Adam little but Apollo "
        "a lot: use --bf16, or --fp16 --fp16-no-flatten-grads",
    ),
}
# With one of these --fp16 leaves each gradient a tensor.
UNFLATTENED = ("fp16_no_flatten_grads", "bf16", "memory_efficient_fp16", "memory_efficient_bf16")


def refuse_unsupported(root: DictConfig) -> None:
    """Raise UsageError if fairseq's config has an option that Apollo does not support."""
    for place, (value, reason) in REFUSED.items():
        if OmegaConf.select(root, place) == value:
            raise UsageError(f"--optimizer apollo does not go with {reason}")
    flattened = not any(OmegaConf.select(root, f"common.{flag}") for flag in UNFLATTENED)
    if OmegaConf.select(root, "common.fp16") and flattened:
        raise UsageError(
            "--optimizer apollo does not go with --fp16 alone, which makes one vector of all gradients, and Apollo's "
            "norms need each tensor: use --bf16, or add --fp16-no-flatten-grads"
        )


def is_composite(root: DictConfig) -> bool:
    """Whether fairseq's config chooses its optimizer that has another for each group of parameters."""
    return getattr(OmegaConf.select(root, "optimizer"), "_name", None) == "composite"

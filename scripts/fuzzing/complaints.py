"""The errors with which fairseq and torch refuse their own flags; any other error is a failure."""

import re

# By type, and the start of the message.
_COMPLAINTS: tuple[tuple[type[Exception], str], ...] = (
    (ValueError, "--"),  # names the flag
    (AssertionError, "--"),
    (AssertionError, "cannot specify cutoff larger than vocab"),
    (AssertionError, "Input features must be a multiple of block sizes"),
    (AssertionError, "Torch not compiled with CUDA"),  # --fp16, --quant-noise-scalar
    (RuntimeError, "Found no NVIDIA driver"),
    (KeyError, ".*LearnedPositionalEmbedding"),  # --quant-noise-scalar
    (RuntimeError, "The expanded size of the tensor"),  # vectors of another size in --encoder-embed-path
    (FileNotFoundError, ".*No such file"),
    (ValueError, "Cannot use a fixed learning rate schedule"),
    (RuntimeError, "chosen optimizer does not support flat params"),
    (AssertionError, "AdaptiveLoss"),
)


def is_fairseqs(error: Exception) -> bool:
    """Whether fairseq or torch refused a flag."""
    return any(isinstance(error, kind) and re.match(pattern, str(error)) for kind, pattern in _COMPLAINTS)

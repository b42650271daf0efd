"""``--bf16`` on the command line also sets ``--tpu``, which fails on every machine without torch_xla.

fairseq 0.12.2 and fairseq-fixed 0.12.3.1. With this patch --bf16 trains on GPUs or CPUs, in one process or several.
"""

from argparse import ArgumentParser
from importlib.util import find_spec
from typing import Any

from fairseq import options
from fairseq.distributed import utils as distributed_utils

from fairseq_luna.replacing import replaces

SUMMARY = "--bf16 set --tpu, which needs torch_xla; --tpu stays unset"


def is_needed() -> bool:
    """Whether --bf16 sets --tpu and torch_xla is not installed."""
    parser = ArgumentParser()
    for flag in ("--bf16", "--fp16", "--batch-size"):
        parser.add_argument(flag, nargs="?", const=True)
    parsed = options.parse_args_and_arch(parser, ["--bf16"])
    return bool(parsed.tpu) and find_spec("torch_xla") is None


def apply() -> None:
    @replaces(distributed_utils, "call_main")
    def call_main(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        if cfg.common.bf16:
            cfg.common.tpu = False
            cfg.distributed_training.tpu = False  # a copy, by which several processes would be a TPU's
        return original(cfg, *args, **kwargs)

"""``--bf16`` on the command line also sets ``--tpu``, which fails at once on every machine without torch_xla.

fairseq 0.12.2 and fairseq-fixed 0.12.3.1. With this patch --bf16 trains on the GPU or CPU.
"""

import functools
from argparse import ArgumentParser
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from fairseq import options
from fairseq.distributed import utils as distributed_utils

from fairseq_luna.compat.patch import Patch


def is_needed() -> bool:
    """Whether --bf16 sets --tpu and torch_xla is not installed."""
    parser = ArgumentParser()
    for flag in ("--bf16", "--fp16", "--batch-size"):
        parser.add_argument(flag, nargs="?", const=True)
    parsed = options.parse_args_and_arch(parser, ["--bf16"])
    return bool(parsed.tpu) and find_spec("torch_xla") is None


def apply() -> None:
    original_call_main = distributed_utils.call_main

    @functools.wraps(original_call_main)
    def call_main(cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
        if cfg.common.bf16:
            cfg.common.tpu = False
        return original_call_main(cfg, main, **kwargs)

    distributed_utils.call_main = call_main


PATCH = Patch("bf16", is_needed, apply, "--bf16 set --tpu, which needs torch_xla; --tpu stays unset")

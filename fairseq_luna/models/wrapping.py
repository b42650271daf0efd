"""Activation checkpointing and FSDP around a layer, by the flags that fairseq's transformer has for them."""

from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import nn


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """``layer``, wrapped as ``cfg`` asks: a checkpointed layer is always an FSDP unit of its own."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)

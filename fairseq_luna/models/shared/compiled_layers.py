"""Training with compiled layers (``--compile-layers``): torch.compile of each encoder and decoder layer, in place.

The layers are compiled while the model is in training mode. Validation, generation and export call the same layers
eagerly: each would need graphs of its own.
"""

import logging
import os
import shutil
from typing import Any

from fairseq.models import BaseFairseqModel

from ...usage_error import UsageError
from .decoder import CausalDecoder
from .encoder import PaddedEncoder
from .layers import ResidualLayer

logger = logging.getLogger(__name__)

BACKEND = "inductor"
# Graphs of one layer class. torch's default of 8 is reached by layers that differ, such as Luna's last one, at several
# ranges of lengths; then torch goes back to eager mode.
MOST_GRAPHS = 64


class CompiledLayersMixin(BaseFairseqModel):
    """A model whose layers are compiled while it trains, after :meth:`compile_layers_in_training`."""

    compiles_layers = False
    says_that_it_compiles = True

    def compile_layers_in_training(self) -> None:
        """Compile the layers at each change to training mode, and call them eagerly in evaluation mode.

        Raises:
            UsageError: FSDP shards the model, or there is no C++ compiler.
        """
        if is_built_for_fsdp():
            raise UsageError(
                "--compile-layers: cannot go with --ddp-backend fully_sharded; use legacy_ddp or pytorch_ddp"
            )
        if BACKEND == "inductor" and not has_compiler():
            raise UsageError("--compile-layers: torch needs a C++ compiler for it, and there is none: install g++")
        self.compiles_layers = True

    def train(self, mode: bool = True) -> Any:
        """As in torch. fairseq calls it before each update, and :meth:`eval` before validation and generation."""
        if self.compiles_layers and mode != self._layers_are_compiled():
            if mode and self.says_that_it_compiles:
                self.says_that_it_compiles = False
                logger.info(
                    "compiling the layers: the first updates, and later ones with sentences of other lengths, take up"
                    " to some minutes; torch keeps the results for later runs in %s",
                    os.environ.get("TORCHINDUCTOR_CACHE_DIR", "its cache, a folder torchinductor_USER in /tmp"),
                )
            self._compile_layers(mode)
        return super().train(mode)

    def _compile_layers(self, mode: bool) -> None:
        """Route calls of the layers through torch.compile, or back to eager mode."""
        if mode:
            import torch._dynamo  # not above: torch's own names may be missing in another version
            import torch.fx.experimental._config

            dynamo = torch._dynamo.config
            dynamo.cache_size_limit = max(dynamo.cache_size_limit, MOST_GRAPHS)
            # Sizes that are equal by chance in the first batch, such as sentences and tokens, may differ in the next.
            torch.fx.experimental._config.use_duck_shape = False
            if torch.__version__.startswith("2.6."):
                import torch._inductor.config

                # For one thread of a CPU its inductor does not add up the gradients of repeated indices.
                torch._inductor.config.cpp.dynamic_threads = True
        for module in self.modules():
            if isinstance(module, PaddedEncoder | CausalDecoder):
                module.always_has_masks = mode
            if isinstance(module, ResidualLayer):
                if mode:
                    module.compile(backend=BACKEND, dynamic=True)  # graphs that were compiled before are found again
                else:
                    module._compiled_call_impl = None  # torch has no function that undoes Module.compile

    def _layers_are_compiled(self) -> bool:
        layers = (module for module in self.modules() if isinstance(module, ResidualLayer))
        return any(layer._compiled_call_impl is not None for layer in layers)


def is_built_for_fsdp() -> bool:
    """Whether fairseq builds a model that FSDP shards, as a whole or layer by layer."""
    try:
        from fairscale.nn.wrap.auto_wrap import ConfigAutoWrap
    except ImportError:
        return False  # fairseq says that fairscale is missing
    return bool(ConfigAutoWrap.in_autowrap_context)


def has_compiler() -> bool:
    """Whether there is a C++ compiler, which torch's inductor needs on a CPU and on a GPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++"))

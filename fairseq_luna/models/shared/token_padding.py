"""The padding of a batch of tokens, which encoders and decoders make once and pass to all layers."""

import torch
from torch import Tensor

from ...ops.padding import Padding


class TokenPaddingMixin:
    """Base class of encoders and decoders, which have fairseq's ``padding_idx``."""

    padding_idx: int
    # Set by --compile-layers: with masks for batches without padding too, a compiled layer is one graph instead of two.
    always_has_masks = False

    @property
    def has_mask_without_padding(self) -> bool:
        """Whether batches without padding get a mask too, so that no number is read from the device.

        True for :attr:`always_has_masks`, and under ``torch.compile`` of the whole model, where reading it would
        break the graph, and each outcome would need its own graph.
        """
        return self.always_has_masks or torch.compiler.is_compiling()

    def padding_of_tokens(self, tokens: Tensor) -> Padding:
        """The padding of ``tokens (B, T)``; whether there is any is the one number read from the device."""
        mask = tokens.eq(self.padding_idx)
        return Padding(mask if self.has_mask_without_padding or mask.any() else None)

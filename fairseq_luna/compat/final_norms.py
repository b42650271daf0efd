"""A pre-norm model loses the norms behind its last layers when a state dict has no "version".

fairseq takes such a state for one of 2018, when there were no such norms, and removes them from the model, although the
state has them. Its own mean of parameters (--store-ema) leaves "version" out, and so do other programs: the model then
computes something else, in silence (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch a norm that the state
has is kept.
"""

from typing import Any

import torch
from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import Tensor, nn

from fairseq_luna.replacing import replaces

SUMMARY = "final norms were removed from pre-norm models whose state has no version; norms that it has are kept"


def is_needed() -> bool:
    """Whether a norm is removed that a state dict without "version" has."""
    return any(map(_is_lost, (TransformerEncoderBase, TransformerDecoderBase)))


def _is_lost(kind: type[nn.Module]) -> bool:
    model = BaseFairseqModel()
    stack = model.stack = kind.__new__(kind)  # without layers, which would draw random numbers
    nn.Module.__init__(stack)
    stack.layers, stack.num_layers, stack.share_input_output_embed = nn.ModuleList(), 0, True
    stack.layer_norm = nn.LayerNorm(1)
    stack.register_buffer("version", torch.Tensor([3]))
    model.upgrade_state_dict({f"stack.layer_norm.{name}": value for name, value in stack.layer_norm.named_parameters()})
    return stack.layer_norm is None


def apply() -> None:
    # Behind the whole model's, which may have given the state's tensors other names.
    @replaces(BaseFairseqModel, "upgrade_state_dict")
    def upgrade_state_dict(original: Any, self: BaseFairseqModel, state_dict: dict[str, Tensor]) -> Any:
        norms = [
            (name, stack, stack.layer_norm)
            for name, stack in self.named_modules()
            if "version" in stack._buffers and getattr(stack, "layer_norm", None) is not None
        ]
        upgraded = original(self, state_dict)
        for name, stack, norm in norms:
            if stack.layer_norm is None and f"{name}.layer_norm.weight" in state_dict:
                stack.layer_norm, stack.normalize = norm, True
                state_dict[f"{name}.version"] = stack.version
        return upgraded

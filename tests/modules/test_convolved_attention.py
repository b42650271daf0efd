"""A convolution before any self-attention is that of the modules that have one of their own."""

import pytest
import torch

from fairseq_luna.modules import (
    BlockAttention,
    BlockCausalAttention,
    FastformerAttention,
    FastformerCausalAttention,
)
from fairseq_luna.modules.convolved_attention import ConvolvedAttention
from fairseq_luna.usage_error import UsageError
from numeric import gradients, scattered_padding, sequences

STEPS = 12
SIZES = {"embed_dim": 8, "num_heads": 2}
CAUSAL = (FastformerCausalAttention, BlockCausalAttention)


def pair(kind):
    """The attention with a convolution of its own, and one without behind the wrapper, of the same weights."""
    torch.manual_seed(0)
    own = kind(**SIZES, kernel_size=3).double()
    wrapped = ConvolvedAttention(kind(**SIZES), embed_dim=8, kernel_size=3, causal=kind in CAUSAL).double()
    wrapped.attention.load_state_dict(own.state_dict(), strict=False)
    wrapped.convolution.load_state_dict(own.convolution.state_dict())
    return own, wrapped


@pytest.mark.parametrize("kind", [FastformerAttention, BlockAttention, *CAUSAL])
def test_outputs_and_gradients(kind):
    [x] = sequences((STEPS, 3, 8))
    mask = scattered_padding(3, STEPS)
    outs = [module(x, padding_mask=mask) for module in pair(kind)]
    real = ~mask.t()
    torch.testing.assert_close(outs[1][real], outs[0][real])
    torch.testing.assert_close(gradients(outs[1][real], x), gradients(outs[0][real], x))


@pytest.mark.parametrize("kind", CAUSAL)
def test_generation_with_a_reordered_beam(kind):
    [x] = sequences((STEPS, 3, 8))
    mask, order, states = scattered_padding(3, STEPS), torch.tensor([2, 0, 0, 1]), ({}, {})
    modules = pair(kind)
    for t in range(STEPS):
        own, wrapped = (
            module(x[t : t + 1], padding_mask=mask[:, t : t + 1], incremental_state=state)
            for module, state in zip(modules, states, strict=True)
        )
        torch.testing.assert_close(wrapped, own)
        if t == 4:
            for module in (modules[0], modules[1], modules[1].attention):
                module.reorder_incremental_state(states[module is not modules[0]], order)
            x, mask = x[:, order], mask[order]


def test_a_kernel_without_a_middle_is_refused():
    with pytest.raises(UsageError, match="kernel_size 4: must be an odd number"):
        ConvolvedAttention(FastformerAttention(**SIZES), embed_dim=8, kernel_size=4, causal=False)

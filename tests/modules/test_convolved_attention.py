"""A convolution before any self-attention is that of the modules that have one of their own."""

import pytest
import torch

from fairseq_luna.modules import BlockAttention, BlockCausalAttention, FastformerAttention, FastformerCausalAttention
from fairseq_luna.modules.attention import ConvolvedAttention
from numeric import assert_same_function, scattered_padding, sequences

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
    own, wrapped = (module(x, padding_mask=mask)[~mask.t()] for module in pair(kind))
    assert_same_function(wrapped, own, [x])

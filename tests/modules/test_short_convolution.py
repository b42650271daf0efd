import pytest
import torch

from fairseq_luna.modules.short_convolution import ShortConvolution
from fairseq_luna.ops.short_convolution import short_convolution_reference
from numeric import assert_same_function, mixed_padding, sequences


def build(kernel_size=5, size=6):
    torch.manual_seed(0)
    return ShortConvolution(embed_dim=size, kernel_size=kernel_size).double()


def inputs(steps=12, batch=2, size=6):
    return sequences((steps, batch, size))[0]


def causal(module, x, padding=None):
    return module.causal(x, padding=padding)[0]


def extended(x, before, after):
    """``x`` with zeros on both sides."""
    return torch.cat([x.new_zeros(before, *x.shape[1:]), x, x.new_zeros(after, *x.shape[1:])])


@pytest.mark.parametrize("kernel_size", [1, 3, 5, 31])
def test_equals_the_naive_form(kernel_size):
    module, x = build(kernel_size), inputs()
    half = kernel_size // 2
    for out, (before, after) in ((module.centered(x), (half, half)), (causal(module, x), (2 * half, 0))):
        expected = x + short_convolution_reference(extended(x, before, after), module.weight)
        assert_same_function(out, expected, [x, module.weight])


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("call", [ShortConvolution.centered, causal], ids=["centered", "causal"])
def test_padding_has_no_effect_wherever_it_stands(call, kernel_size):
    """Neither on the real steps, nor on any gradient, even if it is not a number."""
    module, x, mask = build(kernel_size), inputs(steps=30, batch=3), mixed_padding(30)
    out = call(module, x.masked_fill(mask.t()[..., None], torch.nan), padding=mask)
    alone = [call(module, x[:, row : row + 1][~mask[row]])[:, 0] for row in range(3)]
    assert_same_function(out.transpose(0, 1)[~mask], torch.cat(alone), [x, module.weight])

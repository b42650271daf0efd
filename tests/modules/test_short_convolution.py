import pytest
import torch

from fairseq_luna.modules.short_convolution import ShortConvolution
from fairseq_luna.ops.short_convolution import naive
from numeric import sequences


def build(kernel_size=5, size=6):
    torch.manual_seed(0)
    return ShortConvolution(embed_dim=size, kernel_size=kernel_size, flag="--some-size").double()


def inputs(steps=12, batch=2, size=6):
    return sequences((steps, batch, size))[0]


def causal(module, x):
    return module.causal(x)[0]


def extended(x, before, after):
    """``x`` with zeros on both sides."""
    return torch.cat([x.new_zeros(before, *x.shape[1:]), x, x.new_zeros(after, *x.shape[1:])])


@pytest.mark.parametrize("kernel_size", [1, 3, 5, 31])
def test_equals_the_naive_form(kernel_size):
    module, x = build(kernel_size), inputs()
    half = kernel_size // 2
    for out, (before, after) in ((module.centred(x), (half, half)), (causal(module, x), (2 * half, 0))):
        expected = x + naive.short_convolution(extended(x, before, after), module.weight)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(
            torch.autograd.grad(out.square().sum(), [x, module.weight]),
            torch.autograd.grad(expected.square().sum(), [x, module.weight]),
        )


@pytest.mark.parametrize(
    ("call", "read"),
    [(ShortConvolution.centred, [4, 5, 6, 7, 8]), (causal, [2, 3, 4, 5, 6])],
    ids=["centred", "causal"],
)
def test_reads_only_its_window(call, read):
    x = inputs()
    (seen,) = torch.autograd.grad(call(build(), x)[6].square().sum(), x)
    assert seen.abs().amax((1, 2)).nonzero().flatten().tolist() == read


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_padding_at_the_ends_has_no_effect(left):
    module, x = build(), inputs()
    real = slice(5, None) if left else slice(None, 7)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[1, real] = False
    mask[0] = False
    alone = x[real, 1:]
    torch.testing.assert_close(module.centred(x, padding_mask=mask)[real, 1:], module.centred(alone))
    torch.testing.assert_close(module.causal(x, padding_mask=mask)[0][real, 1:], causal(module, alone))


@pytest.mark.parametrize("parts", [[1] * 12, [7, 1, 4], [2, 10]], ids=str)
def test_the_state_continues_the_sentence(parts):
    module, x, past = build(), inputs(), None
    outs = []
    for part in x.split(parts):
        out, past = module.causal(part, past=past)
        assert past.shape == (2, 4, 6)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs), causal(module, x))


@pytest.mark.parametrize("kernel_size", [-1, 0, 4])
def test_even_and_negative_kernel_sizes_are_refused(kernel_size):
    with pytest.raises(ValueError, match=f"--some-size {kernel_size}: must be an odd number of words"):
        build(kernel_size)

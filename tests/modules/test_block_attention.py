import pytest
import torch
from torch.utils.checkpoint import checkpoint

from fairseq_luna.modules.block_attention import BlockAttention
from fairseq_luna.modules.heads import merge_heads
from fairseq_luna.ops import block_partition
from fairseq_luna.ops.block_attention import naive
from fairseq_luna.ops.block_partition import blocks_of, cut_by_number
from fairseq_luna.ops.once_per_batch import one_pass
from numeric import PADDED, mixed_padding, sequences

UNORDERED = pytest.mark.parametrize("unordered", ["none", "mean", "sum"], ids=["ordered", "mean", "sum"])
SHARED = pytest.mark.parametrize("share_levels", [False, True], ids=["apart", "shared"])
CONVOLVED = pytest.mark.parametrize("kernel_size", [0, 5], ids=["plain", "convolution"])
SIZE = 16


def build(dtype=torch.float64, seed=0, num_heads=4, **options):
    torch.manual_seed(seed)
    return BlockAttention(embed_dim=SIZE, num_heads=num_heads, **options).to(dtype)


def inputs(steps=30, batch=3, dtype=torch.float64):
    return sequences((steps, batch, SIZE), dtype=dtype)[0]


def by_the_equations(module, x, mask):
    """The naive form with the module's projections and convolution."""
    if module.convolution is not None:
        x = module.convolution.centred(x, padding_mask=mask)
    blocks = cut_by_number(mask, module.num_blocks)
    if module.unordered == "none":
        y, z = naive.block_attention(*module.queries_keys_values(x), module.project_summaries, blocks)
    else:
        v = module.block_values(x)
        y, z = naive.unordered_block_attention(v, module.project_summaries, blocks, reduce=module.unordered)
    return module.out_proj(torch.cat([merge_heads(y), merge_heads(z)], dim=-1))


@SHARED
@UNORDERED
@CONVOLVED
@pytest.mark.parametrize("num_blocks", [0, 1, 4, 1000])
@PADDED
def test_equals_the_naive_form(share_levels, unordered, kernel_size, num_blocks, padded):
    module = build(share_levels=share_levels, unordered=unordered, kernel_size=kernel_size, num_blocks=num_blocks)
    x = inputs()
    mask = mixed_padding(30) if padded else None
    nothing_padded = torch.zeros(3, 30, dtype=torch.bool)
    real = ~(mask if padded else nothing_padded).t()
    out = module(x, padding_mask=mask)[real]
    expected = by_the_equations(module, x, mask if padded else nothing_padded)[real]
    torch.testing.assert_close(out, expected)
    wanted = [x, *module.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(out.square().sum(), wanted), torch.autograd.grad(expected.square().sum(), wanted)
    )


@pytest.mark.parametrize(("random", "cuts"), [(False, 1), (True, 3)], ids=["equal", "random"])
def test_layers_of_a_pass_share_the_cut_of_a_mask_unless_blocks_are_random(random, cuts, monkeypatch):
    layers = [build(random_blocks=random) for _ in range(3)]

    @one_pass
    def run(mask):
        for layer in layers:
            layer(inputs(), padding_mask=mask)

    made = []
    monkeypatch.setattr(block_partition, "blocks_of", lambda *args: made.append(args) or blocks_of(*args))
    for mask in (mixed_padding(30), mixed_padding(30)):
        made.clear()
        run(mask)
        assert len(made) == cuts


@SHARED
@UNORDERED
@CONVOLVED
def test_every_parameter_gets_a_gradient(share_levels, unordered, kernel_size):
    module = build(share_levels=share_levels, unordered=unordered, kernel_size=kernel_size)
    x = inputs()
    (module(x) * torch.randn(x.shape, dtype=x.dtype)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_there_are_no_unused_parameters():
    def names(**options):
        return {name.split(".")[0] for name, _ in build(**options).named_parameters()}

    level_one, level_two = {"q_proj", "k_proj", "v_proj"}, {"block_q_proj", "block_k_proj", "block_v_proj"}
    assert names() == level_one | level_two | {"out_proj"}
    assert names(share_levels=True) == level_one | {"out_proj"}
    assert names(unordered="mean") == {"v_proj"} | level_two | {"out_proj"}
    assert names(unordered="sum", share_levels=True) == level_one | {"out_proj"}
    assert build(bias=False).out_proj.bias is None


@UNORDERED
@pytest.mark.parametrize("num_blocks", [0, 4])
def test_a_sentence_does_not_depend_on_its_batch(unordered, num_blocks):
    module = build(unordered=unordered, num_blocks=num_blocks)
    x, mask = inputs().detach(), mixed_padding(30)
    out = module(x, padding_mask=mask)
    assert torch.isfinite(out).all()
    for row in range(3):
        real = ~mask[row]
        torch.testing.assert_close(out[real, row : row + 1], module(x[real, row : row + 1]))


@UNORDERED
def test_inputs_at_padding_have_no_gradient(unordered):
    module = build(unordered=unordered)
    x, mask = inputs(), mixed_padding(30)
    (seen,) = torch.autograd.grad(module(x, padding_mask=mask)[~mask.t()].square().sum(), x)
    assert (seen.abs().amax(-1) > 0).equal(~mask.t())


def test_every_token_reaches_every_other():
    module = build()
    x = inputs(batch=1)
    for t in (0, 29):
        (seen,) = torch.autograd.grad(module(x)[t].square().sum(), x)
        assert (seen.abs().amax(-1) > 0).all()


def test_random_blocks_are_only_for_training_and_follow_the_seed():
    module, equal = build(random_blocks=True), build()
    x = inputs().detach()
    torch.manual_seed(3)
    first, second = module(x), module(x)
    torch.manual_seed(3)
    torch.testing.assert_close(module(x), first, rtol=0, atol=0)
    assert (first - second).abs().max() > 1e-3
    torch.testing.assert_close(module.eval()(x), equal(x), rtol=0, atol=0)
    torch.testing.assert_close(module(x), module(x), rtol=0, atol=0)


def test_activation_checkpointing_draws_the_same_blocks_again():
    module = build(random_blocks=True)
    x = inputs()
    gradients = []
    for run in (lambda: module(x), lambda: checkpoint(module, x, use_reentrant=True)):
        torch.manual_seed(3)
        gradients.append(backward_of(run(), x, module))
    torch.testing.assert_close(*gradients)


def backward_of(out, x, module):
    """All gradients; reentrant checkpoints support only backward()."""
    x.grad = None
    module.zero_grad()
    out.square().sum().backward()
    return [x.grad.clone(), *(parameter.grad.clone() for parameter in module.parameters())]


def test_dropout_is_only_for_training():
    module, undropped = build(dropout=0.5), build()
    x = inputs().detach()
    assert (module(x) - undropped(x)).abs().max() > 1e-3
    torch.testing.assert_close(module.eval()(x), undropped(x))
    module.dropout_module.apply_during_inference = True
    assert (module(x) - undropped(x)).abs().max() > 1e-3


@UNORDERED
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 4e-2), (torch.float16, 5e-3)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(unordered, dtype, bound):
    module, half = build(torch.float32, unordered=unordered), build(dtype, unordered=unordered)
    x = inputs(steps=3000, batch=1, dtype=torch.float32).detach()
    expected, out = module(x), half(x.to(dtype))
    assert out.dtype == dtype
    assert (out.float() - expected).abs().max() < bound * expected.abs().max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_blocks": -1}, "num_blocks -1: must be"),
        ({"unordered": "max"}, "unordered max: choose none, mean or sum"),
        ({"num_heads": 3}, r"num_heads 3: must be 1 or more and divide embed_dim 16"),
    ],
    ids=["num-blocks", "unordered-blocks", "heads"],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)

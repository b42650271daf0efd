import pytest
import torch

from fairseq_luna.modules.block_causal_attention import BlockCausalAttention
from fairseq_luna.modules.heads import merge_heads
from fairseq_luna.ops.block_attention import naive
from fairseq_luna.ops.block_partition import cut_by_size
from numeric import PADDED, mixed_padding, sequences

UNORDERED = pytest.mark.parametrize("unordered", ["none", "mean", "sum"], ids=["ordered", "mean", "sum"])
SHARED = pytest.mark.parametrize("share_levels", [False, True], ids=["apart", "shared"])
CONVOLVED = pytest.mark.parametrize("kernel_size", [0, 5], ids=["plain", "convolution"])
SIZE = 16


def build(dtype=torch.float64, seed=0, block_size=5, **options):
    torch.manual_seed(seed)
    return BlockCausalAttention(embed_dim=SIZE, num_heads=4, block_size=block_size, **options).to(dtype)


def inputs(steps=40, batch=3, dtype=torch.float64):
    return sequences((steps, batch, SIZE), dtype=dtype)[0]


def by_the_equations(module, x, mask):
    """The naive form with the module's projections and convolution."""
    if module.convolution is not None:
        x, _ = module.convolution.causal(x, padding_mask=mask)
    blocks = cut_by_size(mask, module.block_size)
    if module.unordered == "none":
        qkv = module.queries_keys_values(x)
        y, z = naive.block_attention(*qkv, module.project_summaries, blocks, causal=True)
    else:
        v = module.block_values(x)
        y, z = naive.unordered_block_attention(
            v, module.project_summaries, blocks, reduce=module.unordered, causal=True
        )
    return module.out_proj(torch.cat([merge_heads(y), merge_heads(z)], dim=-1))


@SHARED
@UNORDERED
@CONVOLVED
@pytest.mark.parametrize("block_size", [1, 5, 64])
@PADDED
def test_equals_the_naive_form(share_levels, unordered, kernel_size, block_size, padded):
    module = build(share_levels=share_levels, unordered=unordered, kernel_size=kernel_size, block_size=block_size)
    x = inputs()
    mask = mixed_padding(40) if padded else None
    nothing_padded = torch.zeros(3, 40, dtype=torch.bool)
    real = ~(mask if padded else nothing_padded).t()
    out = module(x, padding_mask=mask)[real]
    expected = by_the_equations(module, x, mask if padded else nothing_padded)[real]
    torch.testing.assert_close(out, expected)
    wanted = [x, *module.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(out.square().sum(), wanted), torch.autograd.grad(expected.square().sum(), wanted)
    )


@SHARED
@UNORDERED
@CONVOLVED
@pytest.mark.parametrize("at_once", [1, 4], ids=["one", "four"])
def test_generation_equals_the_full_pass_and_follows_the_beam(share_levels, unordered, kernel_size, at_once):
    module = build(share_levels=share_levels, unordered=unordered, kernel_size=kernel_size)
    x, mask = inputs().detach(), mixed_padding(40)
    expected = module(x, padding_mask=mask)
    state, order = {}, torch.arange(3)
    for t in range(0, 40, at_once):
        step = slice(t, t + at_once)
        if t in (4, 20, 32):  # rows are permuted, one is doubled while its block is open, and the longest is dropped
            chosen = {4: torch.tensor([2, 0, 1]), 20: torch.tensor([0, 0, 1, 2]), 32: torch.tensor([0, 2])}[t]
            module.reorder_incremental_state(state, chosen)
            order = order[chosen]
        out = module(x[step, order], padding_mask=mask[order, step], incremental_state=state)
        assert torch.isfinite(out).all()
        real = ~mask[order, step].t()
        torch.testing.assert_close(out[real], expected[step, order][real])


@UNORDERED
def test_generation_without_padding_equals_the_full_pass(unordered):
    module = build(unordered=unordered)
    x = inputs().detach()
    state = {}
    steps = [module(x[t : t + 1], incremental_state=state) for t in range(40)]
    torch.testing.assert_close(torch.cat(steps), module(x))


@SHARED
@UNORDERED
def test_projections_that_are_more_than_linear_maps_are_called(share_levels, unordered):
    module = build(share_levels=share_levels, unordered=unordered)
    x = inputs().detach()
    expected = module(x)
    called = {name: [] for name, child in module.named_modules() if name.endswith("_proj")}
    for name, calls in called.items():
        module.get_submodule(name).register_forward_hook(lambda *args, calls=calls: calls.append(args))
    state = {}
    steps = [module(x[t : t + 1], incremental_state=state) for t in range(40)]
    assert all(called.values())
    torch.testing.assert_close(torch.cat(steps), expected)
    torch.testing.assert_close(module(x), expected)


@UNORDERED
def test_generation_reads_no_number_from_the_device(unordered):
    # Meta tensors have no numbers: reading one raises.
    module = build(unordered=unordered).to("meta")
    x, mask, state = inputs().detach().to("meta"), mixed_padding(40).to("meta"), {}
    for t in range(40):
        out = module(x[t : t + 1], padding_mask=mask[:, t : t + 1] if t >= 17 else None, incremental_state=state)
        assert out.shape == (1, 3, SIZE)


@UNORDERED
@CONVOLVED
def test_the_state_grows_by_one_summary_per_complete_block(unordered, kernel_size):
    module = build(unordered=unordered, kernel_size=kernel_size)
    x = inputs(batch=1).detach()
    state, sizes = {}, []
    for t in range(40):
        module(x[t : t + 1], incremental_state=state)
        sizes.append(sum(tensor.numel() for tensor in module.load_state(state).values()))
    # Z and, for the convolution, the last K - 1 inputs. For each step of the open block a part of its summary and, if
    # blocks are ordered, a key and a value. For each complete block a key and a value.
    always = SIZE + (4 * SIZE if kernel_size else 0)
    per_step = SIZE * (3 if unordered == "none" else 1)
    assert sizes == [always + t % 5 * per_step + t // 5 * 2 * SIZE for t in range(1, 41)]


@UNORDERED
def test_a_sentence_does_not_depend_on_its_batch(unordered):
    module = build(unordered=unordered)
    x, mask = inputs().detach(), mixed_padding(40)
    out = module(x, padding_mask=mask)
    assert torch.isfinite(out).all()
    for row in range(3):
        real = ~mask[row]
        torch.testing.assert_close(out[real, row : row + 1], module(x[real, row : row + 1]))


@UNORDERED
@CONVOLVED
def test_no_step_depends_on_a_later_one(unordered, kernel_size):
    module = build(unordered=unordered, kernel_size=kernel_size)
    x = inputs()
    out = module(x)
    for t in (0, 4, 5, 22, 39):
        (seen,) = torch.autograd.grad(out[t].square().sum(), x, retain_graph=True)
        assert not seen[t + 1 :].any()
        assert (seen[: t + 1].abs().amax((1, 2)) > 0).all()


@UNORDERED
def test_appended_steps_do_not_change_earlier_outputs(unordered):
    module = build(unordered=unordered)
    x = inputs().detach()
    torch.testing.assert_close(module(x)[:17], module(x[:17]))


@SHARED
@UNORDERED
@CONVOLVED
def test_every_parameter_gets_a_gradient(share_levels, unordered, kernel_size):
    module = build(share_levels=share_levels, unordered=unordered, kernel_size=kernel_size)
    x = inputs()
    (module(x) * torch.randn(x.shape, dtype=x.dtype)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@SHARED
@UNORDERED
def test_with_one_block_every_parameter_has_a_gradient(share_levels, unordered):
    # The second level reads nothing: its gradients are zero, but data-parallel training needs them.
    module = build(share_levels=share_levels, unordered=unordered)
    module(inputs(steps=3)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@UNORDERED
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 4e-2), (torch.float16, 5e-3)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(unordered, dtype, bound):
    module, half = build(torch.float32, unordered=unordered), build(dtype, unordered=unordered)
    x = inputs(steps=2000, batch=1, dtype=torch.float32).detach()
    expected, out = module(x), half(x.to(dtype))
    assert out.dtype == dtype
    assert (out.float() - expected).abs().max() < bound * expected.abs().max()
    state = {}
    with torch.no_grad():
        steps = torch.cat([half(x[t : t + 1].to(dtype), incremental_state=state) for t in range(60)])
    assert (steps.float() - expected[:60]).abs().max() < bound * expected.abs().max()
    assert {tensor.dtype for tensor in half.load_state(state).values()} == {dtype}


def test_dropout_is_only_for_training():
    module, undropped = build(dropout=0.5), build()
    x = inputs().detach()
    assert (module(x) - undropped(x)).abs().max() > 1e-3
    torch.testing.assert_close(module.eval()(x), undropped(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size 0: must be 1 or more"),
        ({"unordered": "max"}, "unordered max: choose none, mean or sum"),
    ],
    ids=["block-size", "unordered-blocks"],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)

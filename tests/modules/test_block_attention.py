"""Properties of block attention beside the contract of every attention."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from fairseq_luna.modules import BlockAttention, BlockCausalAttention
from fairseq_luna.modules.decoding_state import flatten_state
from fairseq_luna.modules.multihead import merge_heads
from fairseq_luna.ops import block_partition
from fairseq_luna.ops.block_attention import block_attention_reference, unordered_block_attention_reference
from fairseq_luna.ops.block_partition import blocks_of, cut_by_number, cut_by_size
from fairseq_luna.ops.padding import Padding
from numeric import PADDED, assert_same_function, mixed_padding, sequences

UNORDERED = pytest.mark.parametrize("unordered", ["none", "mean", "sum"], ids=["ordered", "mean", "sum"])
SHARED = pytest.mark.parametrize("share_levels", [False, True], ids=["apart", "shared"])
CUTS = [(BlockAttention, {"num_blocks": number}) for number in (0, 1, 4, 1000)]
CUTS += [(BlockCausalAttention, {"block_size": size}) for size in (1, 5, 64)]
EVERY_CUT = pytest.mark.parametrize(
    ("kind", "cut"), CUTS, ids=[f"{next(iter(c))}-{n}" for _, c in CUTS for n in c.values()]
)
SIZE = 16


def build(kind=BlockAttention, kernel_size=0, **options):
    torch.manual_seed(0)
    if kind is BlockCausalAttention:
        options = {"block_size": 5, **options}
    module = kind(embed_dim=SIZE, num_heads=4, **options)
    module.convolve(kernel_size)
    return module.double()


def inputs(steps=30, batch=3):
    return sequences((steps, batch, SIZE))[0]


def by_the_equations(module, x, mask):
    """The naive form with the module's projections and convolution."""
    causal = isinstance(module, BlockCausalAttention)
    if module.convolution is not None:
        given = {"padding": mask}
        x = module.convolution.causal(x, **given)[0] if causal else module.convolution.centered(x, **given)
    blocks = cut_by_size(mask, module.block_size) if causal else cut_by_number(mask, module.num_blocks)
    if module.unordered == "none":
        qkv = module.queries_keys_values(x)
        y, z = block_attention_reference(*qkv, module.project_summaries, blocks, causal=causal)
    else:
        options = {"reduce": module.unordered, "causal": causal}
        y, z = unordered_block_attention_reference(
            module.project_heads(module.v_proj, x), module.project_summaries, blocks, **options
        )
    return module.out_proj(torch.cat([merge_heads(y), merge_heads(z)], dim=-1))


@SHARED
@UNORDERED
@pytest.mark.parametrize("kernel_size", [0, 5], ids=["plain", "convolution"])
@EVERY_CUT
@PADDED
def test_equals_the_naive_form(share_levels, unordered, kernel_size, kind, cut, padded):
    module = build(kind, share_levels=share_levels, unordered=unordered, kernel_size=kernel_size, **cut)
    x, mask = inputs(), mixed_padding(30) if padded else None
    no_padding = torch.zeros(3, 30, dtype=torch.bool)
    real = ~(mask if padded else no_padding).t()
    out = module(x, padding_mask=mask)[real]
    expected = by_the_equations(module, x, mask if padded else no_padding)[real]
    assert_same_function(out, expected, [x, *module.parameters()])


@pytest.mark.parametrize(("random", "cuts"), [(False, 1), (True, 3)], ids=["equal", "random"])
def test_layers_share_the_cut_of_a_padding_unless_blocks_are_random(random, cuts, monkeypatch):
    layers = [build(random_blocks=random) for _ in range(3)]

    made = []
    monkeypatch.setattr(block_partition, "blocks_of", lambda *args: made.append(args) or blocks_of(*args))
    for mask in (mixed_padding(30), mixed_padding(30)):
        made.clear()
        padding = Padding(mask)
        for layer in layers:
            layer(inputs(), padding_mask=padding)
        assert len(made) == cuts


def test_without_bias_its_output_has_none():
    assert build(bias=False).out_proj.bias is None


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
    module, x, gradients = build(random_blocks=True), inputs(), []
    for run in (lambda: module(x), lambda: checkpoint(module, x, use_reentrant=True)):
        torch.manual_seed(3)
        x.grad = None
        module.zero_grad()
        run().square().sum().backward()  # reentrant checkpoints support nothing else
        gradients.append([x.grad.clone(), *(parameter.grad.clone() for parameter in module.parameters())])
    torch.testing.assert_close(*gradients)


@UNORDERED
@pytest.mark.parametrize("kernel_size", [0, 5], ids=["plain", "convolution"])
def test_the_state_grows_by_one_summary_per_complete_block(unordered, kernel_size):
    module = build(BlockCausalAttention, unordered=unordered, kernel_size=kernel_size)
    state, sizes = None, []
    for x in inputs(steps=40, batch=1).detach():
        _, state = module.step(x[None], Padding(), state)
        sizes.append(sum(tensor.numel() for tensor in flatten_state(state).values()))
    # Z and, for the convolution, the last K - 1 inputs. For each step of the open block a part of its summary and, if
    # blocks are ordered, a key and a value. For each complete block a key and a value.
    always = SIZE + (4 * SIZE if kernel_size else 0)
    per_step = SIZE * (3 if unordered == "none" else 1)
    assert sizes == [always + t % 5 * per_step + t // 5 * 2 * SIZE for t in range(1, 41)]

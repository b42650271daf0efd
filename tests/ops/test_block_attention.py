"""Properties of block attention beside the contract of every attention."""

import pytest
import torch

from attention_op import BLOCK
from every_op import OPS
from fairseq_luna.ops.block_attention import block_attention, read_blocks
from fairseq_luna.ops.block_attention.two_level_attention import LONGEST_MASKED
from fairseq_luna.ops.block_partition import cut_by_number, cut_by_size
from largest_tensor import LargestTensor
from numeric import TOLERANCE, random_padding

BLOCKS = {name: op for name, op in OPS.items() if name.startswith("block")}
GATHERED = {name: op for name, op in BLOCKS.items() if "masked" not in name}
FORMS = pytest.mark.parametrize("form", ["naive", "fast"])


def each(suits=lambda name: True, of=BLOCKS):
    names = [name for name in of if suits(name)]
    return pytest.mark.parametrize("op", [of[name] for name in names], ids=names)


@each(lambda name: "causal" not in name)
@pytest.mark.parametrize("seed", range(8))
def test_random_blocks(op, seed):
    torch.manual_seed(seed)
    mask = random_padding(3, 50, share=[0.0, 0.3, 0.9, 1.0][seed % 4], seed=seed)
    inputs, blocks = op.make(seed=seed, T=50), cut_by_number(mask, 0, random=True, dtype=torch.float64)
    found, expected = (op.defined(op(form, inputs, blocks=blocks), mask) for form in ("fast", "naive"))
    torch.testing.assert_close(found, expected, **TOLERANCE[torch.float64])
    found, expected = (torch.autograd.grad(sum(x.square().sum() for x in out), inputs) for out in (found, expected))
    torch.testing.assert_close(found, expected, **TOLERANCE[torch.float64])


@each(lambda name: "causal" in name)
@FORMS
def test_the_first_causal_block_reads_nothing_from_the_second_level(op, form):
    _, z = op(form, op.make(T=12))
    assert not z[:, :, :BLOCK].any() and z[:, :, BLOCK:].abs().amin() > 0


@each(lambda name: "mean" in name or "sum" in name)
def test_unordered_blocks_ignore_the_order_of_their_steps(op):
    v, *second = op.make(T=64)
    blocks = op.cut(v)
    order = torch.argsort(blocks.block[0] + torch.rand(64, generator=torch.Generator().manual_seed(0)))
    assert not order.equal(torch.arange(64))
    (y, z), (y_after, z_after) = (op("fast", [x, *second], blocks=blocks) for x in (v, v[:, :, order]))
    torch.testing.assert_close(z_after, z)
    # In the causal form only the last step of a block depends on all steps of the block.
    complete = slice(BLOCK - 1, None, BLOCK) if op.causal else slice(None)
    torch.testing.assert_close(y_after[:, :, complete], y[:, :, complete])


def test_the_form_depends_on_the_length():
    op = BLOCKS["block-gathered-causal"]._replace(extra=(block_attention, read_blocks))
    for steps, pairs in ((LONGEST_MASKED, True), (LONGEST_MASKED + 1, False)):
        with LargestTensor() as largest:
            op("fast", op.make(B=1, H=1, T=steps, D=2))
        assert (largest.elements == steps**2) is pairs


@each(lambda name: "mean" in name, of=GATHERED)
@FORMS
def test_dropout_of_unordered_blocks_drops_only_weights_of_the_second_level(op, form):
    v, *second = op.make(B=1, T=30)
    torch.manual_seed(0)
    y, z = op(form, [v.expand(200, -1, -1, -1), *second], dropout_p=0.5)
    assert y.std(0).amax() < 1e-12
    assert z[:, :, BLOCK if op.causal else 0 :].std(0).amin() > 1e-4


@each(of=GATHERED)
@pytest.mark.parametrize(
    ("dtype", "bound"),
    [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)],
    ids=["fp32", "bf16", "fp16"],
)
@torch.no_grad()
def test_precision_at_50000_steps(op, dtype, bound):
    inputs = op.make(torch.empty(0, dtype=dtype), B=1, H=1, T=50_000, D=4)
    mask = torch.zeros(1, 50_000, dtype=torch.bool)
    if op.options.get("reduce") == "sum":
        inputs[0] = inputs[0] / BLOCK
    blocks = cut_by_size(mask, 64, dtype=torch.float64) if op.causal else cut_by_number(mask, 0, dtype=torch.float64)
    expected = op("fast", [x.double() for x in inputs], blocks=blocks)
    for ours, theirs in zip(op("fast", inputs, blocks=blocks), expected, strict=True):
        assert (ours.double() - theirs).abs().max() < bound * theirs.abs().max()

"""Padding masks of every attention that is used alone."""

import gc
import weakref

import pytest
import torch
from functorch.compile import aot_module
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from every_attention import SIZE, build, call, every, inputs, randn
from fairseq_luna.modules import AttentionPooling, LunaAttention, LunaCausalAttention
from fairseq_luna.ops.padding import Padding
from fairseq_luna.usage_error import UsageError

STEPS, BATCH = 12, 3
# Other numbers, other shapes, and no tensors.
BAD = (
    lambda mask: mask.long(),
    lambda mask: mask.byte(),
    lambda mask: mask.float(),
    lambda mask: torch.zeros(mask.shape).masked_fill(mask, -torch.inf),
    lambda mask: mask[:, :1],
    lambda mask: mask[:1],
    lambda mask: mask.t(),
    lambda mask: mask[:, None],
    lambda mask: mask.numpy(),
    lambda mask: mask.tolist(),
)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
# Neither moves torch's version counter.
WRITES = {
    "data": lambda mask: mask.data.logical_not_(),
    "numpy": lambda mask: mask.numpy().__setitem__(..., ~mask.numpy()),
}


def some_padding():
    mask = torch.zeros(BATCH, STEPS, dtype=torch.bool)
    mask[0, 3:] = mask[1, :5] = mask[2, 5:9] = True
    return mask


def attending(name, place):
    """The attention as a function of its mask alone."""
    module = build(name, place)
    x, source = inputs(module, STEPS, BATCH)
    return lambda mask: call(module, place, x, mask, source)


@every()
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@torch.no_grad()
def test_a_mask_that_was_written_to_is_read_again(name, place, write):
    attend, mask = attending(name, place), some_padding()
    before = attend(mask)
    write(mask)
    after = attend(mask)
    assert after.equal(attend(~some_padding()))
    assert not after.isclose(before, **CLOSE).all()


@every()
@torch.no_grad()
def test_what_is_derived_from_padding_is_freed_with_it(name, place):
    """At once: a cycle of references would keep its tensors until the garbage collector runs."""
    attend, padding = attending(name, place), Padding(some_padding())
    gc.disable()
    try:
        attend(padding)
        freed = weakref.ref(padding)
        del padding
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.slow
@every()
@torch.no_grad()
def test_a_graph_reads_its_mask(name, place):
    attend = attending(name, place)
    attend(mask := some_padding())
    graph = make_fx(attend)(mask)
    torch.testing.assert_close(graph(~mask), attend(~mask), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), [("luna", "decoder"), ("block", "encoder"), ("sparse", "decoder")])
def test_ahead_of_time_autograd_after_a_call(name, place):
    module, x, mask = build(name, place), randn(STEPS, BATCH), some_padding()
    expected = module(x, padding_mask=mask)
    traced = aot_module(module, lambda graph, _: graph)
    torch.testing.assert_close(traced(x, padding_mask=mask), expected, **CLOSE)
    torch.testing.assert_close(aot_module(module, lambda graph, _: graph)(x), module(x), **CLOSE)


@pytest.mark.slow
@every()
@torch.no_grad()
def test_fake_tensors_stay_in_their_mode(name, place):
    attend, mask = attending(name, place), some_padding()
    expected = attend(mask), attend(None)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert attend(mode.from_tensor(mask)).shape == attend(mask).shape == attend(None).shape
    assert attend(mask).equal(expected[0]) and attend(None).equal(expected[1])


@every(without=("pyramid",))  # its model makes the blocks
def test_what_is_no_mask_is_refused(name, place):
    attend = attending(name, place)
    for mask in (bad(some_padding()) for bad in BAD):
        shown = f"{mask.dtype} {tuple(mask.shape)}" if torch.is_tensor(mask) else type(mask).__name__
        with pytest.raises(UsageError, match=r"_?padding_mask .*: must be torch.bool \(3, 12\)") as refused:
            attend(mask)
        assert "\n" not in str(refused.value) and shown in str(refused.value)


@pytest.mark.parametrize("argument", ["context_padding_mask", "packed_padding_mask", "memory_padding_mask"])
def test_the_masks_of_luna_are_checked_by_name(argument):
    x, packed = randn(STEPS, BATCH), randn(3, BATCH)
    bad = {argument: torch.zeros(STEPS, BATCH, dtype=torch.bool)}
    with pytest.raises(UsageError, match=rf"^{argument} torch.bool \(12, 3\): must be torch.bool \(3, (3|12)\)"):
        if argument == "memory_padding_mask":
            LunaCausalAttention(embed_dim=SIZE, num_heads=2)(x, packed, memory=x, **bad)
        else:
            LunaAttention(embed_dim=SIZE, num_heads=2, num_packed_heads=2)(x, packed, x, **bad)


def test_the_mask_of_a_pooling_is_checked():
    with pytest.raises(UsageError, match=r"padding_mask torch\.int64"):
        AttentionPooling(embed_dim=8)(randn(STEPS, BATCH), padding_mask=some_padding().long())


@torch.no_grad()
def test_a_compiled_attention_checks_its_mask():
    module, x = build("linear", "encoder"), randn(STEPS, BATCH)
    compiled = torch.compile(module, backend="eager")
    assert compiled(x, padding_mask=some_padding()).equal(module(x, padding_mask=some_padding()))
    with pytest.raises(UsageError, match=r"padding_mask torch\.int64"):
        compiled(x, padding_mask=some_padding().long())

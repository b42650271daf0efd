"""Sums over time stay in fp32 under autocast."""

from contextlib import nullcontext

import pytest
import torch
from torch.utils._pytree import tree_leaves

from fairseq_luna.ops import (
    block_attention,
    dtypes,
    fastformer_attention,
    folded_attention,
    luna_causal_attention,
    prefix_attention,
    prefix_softmax,
    softmax_attention,
)
from fairseq_luna.ops.block_partition import block_means, cut_by_number, cut_by_size
from numeric import gradients, randn

STEPS, SLOTS, SIZE = 300, 4, 8
MAPS = fastformer_attention.FastformerMaps(
    query_score=lambda q: q.sum(-1), key_score=lambda p: p.sum(-1), combine_key=torch.mul, combine_value=torch.add
)
WEIGHT = folded_attention.Affine(randn(2 * SIZE, 2 * SIZE, grad=False) / 4, randn(2 * SIZE, grad=False))


def sequence(dtype, seed, steps=STEPS):
    return randn(2, 2, steps, SIZE, dtype=dtype, seed=seed)


def qkv(dtype):
    return [sequence(dtype, seed) for seed in range(3)]


def blocks(causal=False):
    mask = torch.zeros(2, STEPS, dtype=torch.bool)
    return cut_by_size(mask, 8) if causal else cut_by_number(mask, 0)


def luna_step(dtype, of_memory):
    q, k, v = qkv(dtype)
    pq, pk = sequence(dtype, 3, SLOTS), sequence(dtype, 4)
    state = luna_causal_attention.initial_state(pq)
    if of_memory:
        state = luna_causal_attention.state_after(k, v, pq, pk)
    return luna_causal_attention.luna_causal_attention_step(q, k, v, pk, state)


def unordered_step(dtype):
    v = sequence(dtype, 2)
    return block_attention.unordered_block_attention_step(
        v, lambda s: (s, s, s), block_attention.initial_state(v, 0), reduce="mean", block_size=8
    )


def folded(dtype):
    affine = folded_attention.Affine(*(x.to(dtype) for x in WEIGHT))
    x, slots = randn(2, STEPS, 2 * SIZE, dtype=dtype), sequence(dtype, 3, SLOTS)
    packed = folded_attention.pack(slots, x, affine, affine)
    return packed, folded_attention.unpack(x, packed, packed, affine, affine)


# Each takes the dtype of its inputs and returns tensors.
SUMS = {
    "prefix-attention": lambda dtype: prefix_attention.prefix_attention(*qkv(dtype)),
    "prefix-attention-step": lambda dtype: prefix_attention.prefix_attention_step(
        *qkv(dtype), prefix_attention.initial_prefix_mean(*qkv(dtype)[1:])
    ),
    "prefix-mean-of": lambda dtype: prefix_attention.prefix_mean_of(*qkv(dtype)[1:]),
    "prefix-softmax": lambda dtype: prefix_softmax.prefix_softmax(sequence(dtype, 0).sum(-1), sequence(dtype, 1)),
    "prefix-softmax-step": lambda dtype: prefix_softmax.prefix_softmax_step(
        sequence(dtype, 0).sum(-1), sequence(dtype, 1), prefix_softmax.initial_running_softmax(sequence(dtype, 1))
    ),
    "fastformer": lambda dtype: fastformer_attention.fastformer_attention(*qkv(dtype), MAPS),
    "fastformer-causal": lambda dtype: fastformer_attention.fastformer_causal_attention(*qkv(dtype), MAPS),
    "fastformer-step": lambda dtype: fastformer_attention.fastformer_causal_attention_step(
        *qkv(dtype), MAPS, fastformer_attention.initial_state(sequence(dtype, 0))
    ),
    "block-means": lambda dtype: block_means(randn(STEPS, 2, SIZE, dtype=dtype), blocks()),
}
ATTENTIONS = {
    **SUMS,
    "softmax": lambda dtype: softmax_attention.softmax_attention(*qkv(dtype), need_weights=True),
    "folded": folded,
    "luna-causal": lambda dtype: luna_causal_attention.luna_causal_attention(
        *qkv(dtype), sequence(dtype, 3, SLOTS), sequence(dtype, 4)
    ),
    "luna-step": lambda dtype: luna_step(dtype, of_memory=False),
    "luna-step-after-memory": lambda dtype: luna_step(dtype, of_memory=True),
    "block": lambda dtype: block_attention.block_attention(*qkv(dtype), lambda s: (s, s, s), blocks()),
    "block-causal": lambda dtype: block_attention.block_attention(
        *qkv(dtype), lambda s: (s, s, s), blocks(causal=True), causal=True
    ),
    "block-step": lambda dtype: block_attention.block_attention_step(
        *qkv(dtype), lambda s: (s, s, s), block_attention.initial_state(sequence(dtype, 0), 8)
    ),
    "block-unordered": lambda dtype: block_attention.unordered_block_attention(
        sequence(dtype, 2), lambda s: (s, s, s), blocks(causal=True), reduce="mean", causal=True
    ),
    "block-unordered-step": unordered_step,
}
CASES = [(SUMS[name], torch.float32) for name in SUMS] + [(ATTENTIONS[name], torch.bfloat16) for name in ATTENTIONS]
IDS = [f"{name}-fp32" for name in SUMS] + [f"{name}-bf16" for name in ATTENTIONS]


@pytest.mark.parametrize(("compute", "dtype"), CASES, ids=IDS)
def test_autocast_changes_nothing(compute, dtype):
    expected = tree_leaves(compute(dtype))
    with torch.autocast("cpu", torch.bfloat16):
        actual = tree_leaves(compute(dtype))
    assert [x.dtype for x in actual] == [x.dtype for x in expected]
    assert all(ours.equal(theirs) for ours, theirs in zip(actual, expected, strict=True))


@pytest.mark.parametrize("backward_inside", [False, True], ids=["backward-outside", "backward-inside"])
def test_gradients_of_prefix_attention_stay_in_fp32(backward_inside):
    args = qkv(torch.float32)
    expected = gradients(prefix_attention.prefix_attention(*args), *args)
    with torch.autocast("cpu", torch.bfloat16):
        out = prefix_attention.prefix_attention(*args)
        with nullcontext() if backward_inside else torch.autocast("cpu", enabled=False):
            actual = gradients(out, *args)
    assert all(ours.equal(theirs) for ours, theirs in zip(actual, expected, strict=True))


@pytest.mark.parametrize("steps", [2048, 70_000], ids=["T2048", "T70000"])
def test_long_sums_of_equal_steps_are_exact_under_fp16(steps):
    # In fp16 the numerator overflows after 819 steps, the denominator after 65,504.
    scores, v = torch.zeros(1, 1, steps), torch.full((1, 1, steps, 4), 80.0)
    maps = fastformer_attention.FastformerMaps(
        query_score=lambda _: scores, key_score=lambda _: scores, combine_key=torch.maximum, combine_value=torch.add
    )
    with torch.autocast("cpu", torch.float16):
        pooled, _ = fastformer_attention.fastformer_attention(v, v, v, maps)
        causal, _ = fastformer_attention.fastformer_causal_attention(v, v, v, maps)
    torch.testing.assert_close(causal, 2 * v, rtol=1e-5, atol=0)
    torch.testing.assert_close(pooled, 2 * v, rtol=1e-5, atol=0)


def test_the_context_is_entered_only_under_autocast():
    x = torch.zeros(1)
    for device in ("cpu", "meta"):
        assert isinstance(dtypes.full_precision(x.to(device)), nullcontext)
    with torch.autocast("cpu", torch.bfloat16), dtypes.full_precision(x):
        assert not torch.is_autocast_enabled("cpu")

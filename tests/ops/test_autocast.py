"""Sums over time stay in fp32 under autocast."""

from contextlib import nullcontext

import pytest
import torch

from every_op import ATTENTIONS, OPS, SUMS
from fairseq_luna.ops import dtypes, fastformer_attention, prefix_attention
from numeric import gradients

CASES = [(SUMS[name], torch.float32) for name in SUMS] + [(ATTENTIONS[name], torch.bfloat16) for name in ATTENTIONS]
IDS = [f"{name}-fp32" for name in SUMS] + [f"{name}-bf16" for name in ATTENTIONS]


@pytest.mark.parametrize(("compute", "dtype"), CASES, ids=IDS)
def test_autocast_changes_nothing(compute, dtype):
    like = torch.empty(0, dtype=dtype)
    inputs = compute.make(like)
    expected = compute(*inputs)
    with torch.autocast(torch.get_default_device().type, torch.bfloat16):
        actual = compute(*inputs)
    assert [x.dtype for x in actual] == [x.dtype for x in expected]
    assert all(ours.equal(theirs) for ours, theirs in zip(actual, expected, strict=True))


@pytest.mark.parametrize("backward_inside", [False, True], ids=["backward-outside", "backward-inside"])
def test_gradients_of_prefix_attention_stay_in_fp32(backward_inside):
    args = OPS["prefix-attention"].make(torch.empty(0))
    expected = gradients(prefix_attention.prefix_attention(*args), *args)
    with torch.autocast(torch.get_default_device().type, torch.bfloat16):
        out = prefix_attention.prefix_attention(*args)
        with nullcontext() if backward_inside else torch.autocast(torch.get_default_device().type, enabled=False):
            actual = gradients(out, *args)
    assert all(ours.equal(theirs) for ours, theirs in zip(actual, expected, strict=True))


@pytest.mark.parametrize("steps", [2048, 70_000], ids=["T2048", "T70000"])
def test_long_sums_of_equal_steps_are_exact_under_fp16(steps):
    # In fp16 the numerator overflows after 819 steps, the denominator after 65,504.
    scores, v = torch.zeros(1, 1, steps), torch.full((1, 1, steps, 4), 80.0)
    maps = fastformer_attention.FastformerMaps(
        query_score=lambda _: scores, key_score=lambda _: scores, combine_key=torch.maximum, combine_value=torch.add
    )
    with torch.autocast(torch.get_default_device().type, torch.float16):
        pooled, _ = fastformer_attention.fastformer_attention(v, v, v, maps)
        causal, _ = fastformer_attention.fastformer_causal_attention(v, v, v, maps)
    torch.testing.assert_close(causal, 2 * v, rtol=1e-5, atol=0)
    torch.testing.assert_close(pooled, 2 * v, rtol=1e-5, atol=0)


def test_the_context_is_entered_only_under_autocast():
    x = torch.zeros(1)
    for device in ("cpu", "meta"):
        assert isinstance(dtypes.full_precision(x.to(device)), nullcontext)
    with torch.autocast(torch.get_default_device().type, torch.bfloat16), dtypes.full_precision(x):
        assert not torch.is_autocast_enabled(x.device.type)

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_luna.ops.softmax_attention import fused, naive
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, gradients, randn, random_padding

SHAPES = [(1, 1, 1, 1, 1), (2, 3, 7, 9, 4), (2, 4, 16, 65, 8)]
SHAPE_IDS = [f"B{b}-H{h}-T{t}-S{s}-D{d}" for b, h, t, s, d in SHAPES]


def inputs(shape, dtype=torch.float64, seed=0):
    batch, heads, steps, keys, size = shape
    return (
        randn(batch, heads, steps, size, dtype=dtype, seed=seed),
        randn(batch, heads, keys, size, dtype=dtype, seed=seed + 1),
        randn(batch, heads, keys, size, dtype=dtype, seed=seed + 2),
    )


@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_fused_equals_naive(shape, dtype, padded):
    q, k, v = inputs(shape, dtype)
    mask = random_padding(shape[0], shape[3], share=0.4) if padded else None
    expected, expected_weights = naive.softmax_attention(q, k, v, padding_mask=mask, need_weights=True)
    actual, weights = fused.softmax_attention(q, k, v, padding_mask=mask, need_weights=True)
    assert {x.dtype for x in (actual, weights)} == {dtype}
    torch.testing.assert_close(weights, expected_weights, **TOLERANCE[dtype])
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    ours, theirs = (torch.cat([x.flatten(), y.flatten()]) for x, y in ((actual, weights), (expected, expected_weights)))
    for found, exact in zip(gradients(ours, q, k, v), gradients(theirs, q, k, v), strict=True):
        torch.testing.assert_close(found, exact, **TOLERANCE[dtype])
    alone, none = fused.softmax_attention(q, k, v, padding_mask=mask)
    assert alone.equal(actual) and none is None
    if padded:
        made_before = fused.additive_mask(mask, like=q)
        assert made_before.shape == mask.shape
        again, same_weights = fused.softmax_attention(q, k, v, padding_mask=made_before, need_weights=True)
        assert again.equal(actual) and same_weights.equal(weights)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, high) for high in (3, 3, 9, 30, 8))),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_padding(shape, share, seed):
    q, k, v = inputs(shape, seed=seed)
    mask = random_padding(shape[0], shape[3], share=share, seed=seed)
    forms = (fused.softmax_attention, naive.softmax_attention)
    results = [form(q, k, v, padding_mask=mask, need_weights=True) for form in forms]
    torch.testing.assert_close(*results)
    for _, weights in results:
        assert weights.masked_select(mask[:, None, None].expand_as(weights)).eq(0).all()


@PADDED
@EVERY_DTYPE
def test_a_bias_is_added_to_the_scores(dtype, padded):
    q, k, v = inputs((2, 3, 7, 9, 4), dtype)
    bias = randn(1, 3, 7, 9, dtype=torch.float64 if dtype == torch.float64 else torch.float32, seed=5)
    mask = random_padding(2, 9, share=0.4) if padded else None
    if padded:
        mask[1] = True
    results = [
        form.softmax_attention(q, k, v, padding_mask=mask, bias=bias, need_weights=True) for form in (fused, naive)
    ]
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    found, exact = (gradients(torch.cat([x.flatten() for x in result]), q, k, v, bias) for result in results)
    torch.testing.assert_close(found, exact, **TOLERANCE[dtype])


@EVERY_DTYPE
def test_output_and_gradients_are_zero_if_all_is_padding(dtype):
    q, k, v = inputs((2, 2, 3, 5, 4), dtype)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[1] = True
    for form in (fused, naive):
        out, weights = form.softmax_attention(q, k, v, padding_mask=mask, need_weights=True)
        assert out[1].abs().max() == weights[1].abs().max() == 0
        assert out[0].abs().max() > 0
        for gradient in gradients(out, q, k, v):
            assert torch.isfinite(gradient).all()
            assert gradient[1].abs().max() == 0


def test_dropout_drops_and_rescales():
    q, k, v = inputs((1, 1, 1, 20_000, 4))
    torch.manual_seed(0)
    whole, dropped = (fused.softmax_attention(q, k, v, dropout_p=p)[0] for p in (0.0, 0.5))
    assert (whole - dropped).abs().max() > 1e-3
    torch.testing.assert_close(whole, dropped, rtol=0, atol=0.1)


@pytest.mark.parametrize("disabled", [None, "flash"])
@torch.no_grad()
def test_leaves_cudnns_kernel_out(disabled, monkeypatch):
    """On a CUDA tensor without its data; a kernel that the user disabled stays disabled, and the flags come back."""
    names = ("cudnn", "flash", "mem_efficient", "math")
    flags = {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled") for name in names}
    seen = {}

    def attend(q, k, v, **options):
        seen.update({name: enabled() for name, enabled in flags.items()})
        return q

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    if disabled:
        getattr(torch.backends.cuda, f"enable_{disabled}_sdp")(False)
    try:
        before = {name: enabled() for name, enabled in flags.items()}
        with FakeTensorMode():
            q = torch.empty(2, 4, 8, 16, device="cuda", dtype=torch.float16)
            fused.softmax_attention(q, q, q)
        assert {name: enabled() for name, enabled in flags.items()} == before
        assert seen == {**before, "cudnn": False}
    finally:
        torch.backends.cuda.enable_flash_sdp(True)

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from every_op import OPS
from fairseq_luna.ops.padding import Padding
from fairseq_luna.ops.softmax_attention import softmax_attention
from numeric import EVERY_DTYPE, mixed_padding

OP = OPS["softmax"]


@EVERY_DTYPE
def test_padding_that_is_read_again_and_an_output_without_weights(dtype):
    (q, k, v), mask = OP.make(torch.empty(0, dtype=dtype)), mixed_padding(40)
    mask[2] = True
    expected, expected_weights = OP("fast", [q, k, v], mask)
    assert not expected_weights.masked_select(mask[:, None, None]).any()
    padding = Padding(mask)
    for _ in range(2):
        out, weights = softmax_attention(q, k, v, padding=padding, need_weights=True)
        assert out.equal(expected) and weights.equal(expected_weights)
    alone, none = softmax_attention(q, k, v, padding=mask)
    assert alone.equal(expected) and none is None


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
            softmax_attention(q, q, q)
        assert {name: enabled() for name, enabled in flags.items()} == before
        assert seen == {**before, "cudnn": False}
    finally:
        torch.backends.cuda.enable_flash_sdp(True)

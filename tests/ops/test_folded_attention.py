import torch

from every_op import OPS
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, randn, random_padding


@EVERY_DTYPE
@PADDED
def test_a_bias_of_the_pack_scores(dtype, padded):
    op = OPS["pack"]
    inputs, bias = op.make(torch.empty(0, dtype=dtype)), randn(1, 2, 7, 40, dtype=dtype, seed=9)
    mask = random_padding(3, 40, share=0.4) if padded else None
    (actual,), (expected,) = (op(form, inputs, mask, bias=bias) for form in ("fast", "naive"))
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, [*inputs, bias], dtype)

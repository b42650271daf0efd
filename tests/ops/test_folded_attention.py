import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.folded_attention import folding_pays
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


@pytest.mark.parametrize(
    ("steps", "slots", "maps", "pays"),
    [(1024, 64, 2, True), (1024, 64, 1, True), (1024, 128, 1, False), (25, 64, 2, False), (1, 64, 2, False)],
)
def test_folding_is_for_long_sequences_and_few_slots(steps, slots, maps, pays):
    assert folding_pays(steps=steps, slots=slots, channels=256, maps=maps, products=2) is pays

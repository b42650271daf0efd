import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.padding import Padding
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, TOLERANCE, mixed_padding


@EVERY_DTYPE
@pytest.mark.parametrize("causal", ["", "-causal"], ids=["bidirectional", "causal"])
@torch.no_grad()
def test_keys_of_positions_give_scores_of_positions(causal, dtype):
    q, keys, v = inputs = OPS[f"synthesizer-keys{causal}"].make(torch.empty(0, dtype=dtype))
    mask = mixed_padding(40)
    scores = Padding(mask).pack_left(q) @ keys.mT
    expected = OPS[f"synthesizer-words{causal}"]("naive", [scores, v], mask)
    torch.testing.assert_close(OPS[f"synthesizer-keys{causal}"]("fast", inputs, mask), expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("mask", [None, mixed_padding(60)], ids=["whole", "padded"])
def test_a_causal_batch_shares_the_weights_of_positions(mask):
    op = OPS["synthesizer-positions-causal"]
    scores, _ = inputs = op.make(torch.empty(0), T=60)
    with LargestTensor() as largest:
        op("fast", inputs, mask)[0].sum().backward()
    assert largest.elements == scores.numel()

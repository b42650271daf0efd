import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.nystrom_attention import nystrom_attention, nystrom_attention_reference
from numeric import mixed_padding
from support import assert_recorded


def test_with_a_landmark_for_each_step_it_is_softmax_attention():
    """Here six iterations are not enough: twenty are."""
    op, mask = OPS["nystrom-1000"], mixed_padding(12)
    mask[0] = False
    q, k, v, kernel = op.make(T=12)
    expected = OPS["softmax"]("naive", [q, k, v], mask)[0].transpose(1, 2)[~mask]
    near, nearer = (op("fast", [q, k, v, 0 * kernel], mask, iterations=n)[0].transpose(1, 2)[~mask] for n in (6, 40))
    torch.testing.assert_close(nearer, expected, rtol=1e-5, atol=1e-6)
    assert (near - expected).abs().max() > 1e-2


@pytest.mark.parametrize("form", [nystrom_attention_reference, nystrom_attention], ids=["naive", "fused"])
def test_equals_the_numbers_of_the_authors(form):
    def attention(*inputs, recorded):
        return form(*inputs, num_landmarks=recorded["num_landmarks"])

    assert_recorded("nystrom.pt", attention, ("q", "k", "v", "kernel"))

import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.linformer_attention import fused, linformer_slots, linformer_weights, naive
from numeric import PADDED, mixed_padding
from support import assert_recorded


@PADDED
def test_weights_are_those_with_which_values_are_added(padded):
    (q, k, v, *sums), mask = OPS["linformer"].make(), mixed_padding(40) if padded else None
    keys, values = linformer_slots(k, v, *sums, padding_mask=mask)
    slot_weights = (q @ keys.mT / 8**0.5).softmax(-1)
    weights = linformer_weights(slot_weights, sums[1], 40, padding_mask=mask)
    torch.testing.assert_close(weights @ v, slot_weights @ values)


@pytest.mark.parametrize("form", [naive, fused], ids=["naive", "fused"])
def test_equals_the_numbers_of_the_published_implementation(form):
    def attention(q, k, v, sums, *, recorded):
        mask = torch.arange(q.shape[2]) >= recorded["lengths"][:, None]
        return form.linformer_attention(q, k, v, sums, sums, padding_mask=mask)

    assert_recorded("linformer.pt", attention, ("q", "k", "v", "sums"))

import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.linformer_attention import (
    linformer_attention,
    linformer_attention_reference,
    linformer_slots,
    linformer_weights,
)
from support import assert_recorded


def test_weights_without_a_mask_are_those_with_which_values_are_added():
    q, k, v, *sums = OPS["linformer"].make()
    keys, values = linformer_slots(k, v, *sums)
    slot_weights = (q @ keys.mT / 8**0.5).softmax(-1)
    torch.testing.assert_close(linformer_weights(slot_weights, sums[1], 40) @ v, slot_weights @ values)


@pytest.mark.parametrize("form", [linformer_attention_reference, linformer_attention], ids=["naive", "fused"])
def test_equals_the_numbers_of_the_published_implementation(form):
    def attention(q, k, v, sums, *, recorded):
        mask = torch.arange(q.shape[2]) >= recorded["lengths"][:, None]
        return form(q, k, v, sums, sums, padding=mask)

    assert_recorded("linformer.pt", attention, ("q", "k", "v", "sums"))

import pytest
import torch

from fairseq_luna.ops.linformer_attention import fused, naive
from support import assert_recorded


@pytest.mark.parametrize("form", [naive, fused], ids=["naive", "fused"])
def test_equals_the_numbers_of_the_published_implementation(form):
    def attention(q, k, v, sums, *, recorded):
        mask = torch.arange(q.shape[2]) >= recorded["lengths"][:, None]
        return form.linformer_attention(q, k, v, sums, sums, padding_mask=mask)

    assert_recorded("linformer.pt", attention, ("q", "k", "v", "sums"))

import pytest
import torch
import torch.nn.functional as F

from every_op import OPS
from fairseq_luna.ops.fastformer_attention import (
    FastformerMaps,
    fastformer_attention,
    fastformer_causal_attention,
)

BOTH, CAUSAL = OPS["fastformer-product"], OPS["fastformer-product-causal"]
FORMS = pytest.mark.parametrize("form", ["naive", "fast"])


def query_scores(q, k, v, query_weight, key_weight):
    """``(B, H, T)``, as the table's scores."""
    return torch.einsum("bhtd,ghd->bgt", q, query_weight) / q.shape[-1] ** 0.5


@FORMS
def test_the_softmax_is_over_time_and_per_head(form):
    q, *others = inputs = BOTH.make(T=20)
    _, global_query = BOTH(form, inputs)
    weights = query_scores(q, *others).softmax(2)
    torch.testing.assert_close(global_query, weights[:, :, None] @ q)


def test_causal_and_bidirectional_differ_as_documented():
    inputs = BOTH.make(T=30)
    (whole, pooled), (causal, running) = BOTH("naive", inputs), CAUSAL("naive", inputs)
    torch.testing.assert_close(running[:, :, -1:], pooled)
    assert (causal[:, :, -1] - whole[:, :, -1]).abs().max() > 0.01
    one = BOTH.of_steps(inputs, slice(0, 1))
    torch.testing.assert_close(CAUSAL("naive", one), BOTH("naive", one))


@FORMS
def test_a_dropped_step_is_dropped_for_all_later_steps_and_the_denominator_kept(form, monkeypatch):
    q, *others = inputs = CAUSAL.make(B=1, T=50)
    left = 2.0 * (torch.rand(1, 2, 50, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    monkeypatch.setattr(F, "dropout", lambda ones, p: left * ones if p == 0.5 else None)
    _, global_query = CAUSAL(form, inputs, dropout_p=0.5)
    scores = query_scores(q, *others)
    for t in (0, 17, 49):
        kept = scores[:, :, : t + 1].softmax(-1) * left[:, :, : t + 1]
        torch.testing.assert_close(global_query[:, :, t], (kept[..., None] * q[:, :, : t + 1]).sum(2))


@pytest.mark.parametrize("attention", [fastformer_attention, fastformer_causal_attention])
def test_the_mean_of_100000_equal_vectors_is_that_vector(attention):
    # Every weight except the first is rounded in fp32, always in the same direction.
    q = torch.full((1, 1, 100_000, 2), 0.1)
    score = torch.full((1, 1, 100_000), -2.302585 * 2**0.5)
    score[:, :, 0] = 0
    maps = FastformerMaps(
        query_score=lambda _: score, key_score=lambda _: score, combine_key=torch.add, combine_value=torch.add
    )
    u, global_query = attention(q, q, q, maps)
    torch.testing.assert_close(global_query[:, :, -1:], q[:, :, :1], rtol=5e-5, atol=0)
    torch.testing.assert_close(u, 3 * q, rtol=5e-5, atol=0)

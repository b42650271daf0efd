import math

import pytest
import torch
import torch.nn.functional as F

from every_op import OPS
from fairseq_luna.ops import feature_maps, kernel_attention
from fairseq_luna.ops.kernel_attention import NORMALISERS
from numeric import assert_same_function, mixed_padding, randn

EVERY_NORMALISER = pytest.mark.parametrize("normalizer", NORMALISERS)
FORMS = pytest.mark.parametrize("form", ["naive", "fast"])
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def op_of(normalizer, causal=False):
    return OPS[f"kernel-{normalizer}{'-causal' if causal else ''}"]


@EVERY_NORMALISER
def test_the_state_of_a_whole_sequence_is_that_after_its_steps(normalizer):
    op, mask = op_of(normalizer, causal=True), mixed_padding(40)
    q, k, v = inputs = op.make()
    *_, ((stepped,), state) = op.in_steps(inputs, mask)
    whole = kernel_attention.kernel_mean_of(k, v, padding=mask)
    torch.testing.assert_close(tuple(whole), tuple(state))
    # The last step sees all of them.
    last = kernel_attention.read_kernel_mean(q[:, :, -1:], whole, normalizer=normalizer, causal=True)
    torch.testing.assert_close(last, stepped)


@FORMS
@CAUSAL
def test_a_bounded_denominator_is_at_least_one(form, causal):
    one = torch.ones(1, 1, 4, 1, dtype=torch.float64)
    signed = torch.tensor([0.5, -3.0, 1.0, 4.0], dtype=torch.float64).view(1, 1, 4, 1)
    [found] = op_of("bounded", causal)(form, [one, signed, one])
    sums = [0.5, -2.5, -1.5, 2.5] if causal else [2.5] * 4
    assert found.flatten().tolist() == pytest.approx([total / max(total, 1.0) for total in sums])


@FORMS
def test_a_bound_is_of_the_size_of_a_negative_sum(form):
    """As RFA's authors divide: 400 keys on the other side of a query have a sum of -4, and the output is minus v."""
    query, keys = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.tensor([0.0, 1.0]).expand(1, 1, 400, 2)
    matrix, v = torch.tensor([[[math.pi, 0.0]]]), torch.full((1, 1, 400, 1), 0.49)
    q, k = (feature_maps.fourier_features(x.double(), matrix) for x in (query, keys))
    assert (q @ k.mT).sum().item() == pytest.approx(-4, rel=1e-4)
    assert op_of("bounded")(form, [q, k, v.double()])[0].item() == pytest.approx(-0.49)


@EVERY_NORMALISER
@CAUSAL
def test_dropped_steps_are_missing_from_the_values_and_still_in_the_denominators(normalizer, causal):
    op = op_of(normalizer, causal)
    q, k, v = op.make()
    torch.manual_seed(5)
    dropped = op("fast", [q, k, v], dropout_p=0.5)
    torch.manual_seed(5)
    kept = F.dropout(torch.ones(3, 2, 40, dtype=torch.float64), 0.5)[..., None]
    torch.testing.assert_close(dropped, op("naive", [q, k, kept * v]))


def test_equal_steps_stay_exact_for_100000_steps():
    # The sums of weights grow linearly; the output is the value.
    q, k, v = (torch.full((1, 1, 100_000, 4), value) for value in (0.7, 3.0, 5.0))
    for normalizer in NORMALISERS:
        torch.testing.assert_close(
            kernel_attention.kernel_causal_attention(q, k, v, normalizer=normalizer),
            v if normalizer != "each feature" else v * 2.8,
            rtol=2e-5,
            atol=0,
        )


def test_the_constant_of_positive_queries_and_their_norm_cancel():
    """Dividing by the largest feature of a query changes neither the attention nor its gradients."""
    q, k, v = (randn(2, 3, 40, 8, seed=seed) for seed in range(3))
    w = randn(16, 8, grad=False, seed=9)

    def published(x):
        x = x / 8**0.25
        return (x @ w.mT - x.square().sum(-1, keepdim=True) / 2).exp() / 4

    expected = kernel_attention.kernel_causal_attention_reference(published(q), published(k), v)
    of_query, of_key = feature_maps.positive_query_features(q, w), feature_maps.positive_key_features(k, w)
    actual = kernel_attention.kernel_causal_attention(of_query, of_key, v)
    assert_same_function(actual, expected, (q, k, v))


@FORMS
def test_efficient_attention_is_two_softmaxes_the_second_over_the_steps_so_far_if_causal(form):
    q, k, v = (randn(2, 3, 40, 8, seed=seed) for seed in range(3))
    given = [feature_maps.softmax_features(q), feature_maps.exponential_features(k), v]
    (whole,), (causal,) = (op_of("each feature", causal)(form, given) for causal in (False, True))
    torch.testing.assert_close(whole, q.softmax(-1) @ (k.softmax(2).mT @ v))
    for t in (0, 17, 39):
        context = k[:, :, : t + 1].softmax(2).mT @ v[:, :, : t + 1]
        torch.testing.assert_close(causal[:, :, t], (q[:, :, t, None].softmax(-1) @ context)[:, :, 0])


@CAUSAL
def test_an_unknown_normaliser_is_refused(causal):
    op = op_of("sum", causal)._replace(options={"normalizer": "max"})
    with pytest.raises(ValueError, match="normalizer max: choose one of sum, bounded, each feature"):
        op("fast", op.make())

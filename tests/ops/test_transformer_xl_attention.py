"""Promises of Transformer-XL's attention beside the contract of every op."""

import pytest
import torch
import torch.nn.functional as F

from every_op import OPS
from fairseq_luna.ops.transformer_xl_attention import (
    transformer_xl_attention,
    transformer_xl_attention_reference,
)
from numeric import randn

FORMS = pytest.mark.parametrize(
    "form", [transformer_xl_attention_reference, transformer_xl_attention], ids=["reference", "training"]
)
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["encoder", "causal"])


def inputs(**sizes):
    q, k, v, *positions = OPS["transformer-xl-8-9"].make(**sizes)
    return [q, k, v, k, v, *positions]


@FORMS
@CAUSAL
def test_without_biases_and_distances_it_is_softmax_attention_to_a_mask(form, causal):
    q, k, v, *_ = inputs(T=23)
    positions = [x.new_zeros(x.shape) for x in inputs(T=23)[5:]]
    seen = torch.zeros(23, 23, dtype=torch.bool)
    for start in range(0, 23, 5):  # the steps of a segment see it and seven steps before it
        seen[start : start + 5, max(0, start - 7) : start + 5] = True
    seen = seen.tril() if causal else seen
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    found = form(q, k, v, k, v, *positions, segment=5, memory=7, causal=causal)
    torch.testing.assert_close(found, expected)


@FORMS
@pytest.mark.parametrize(("segment", "memory"), [(4, 0), (1, 3), (3, 50), (40, 5)])
def test_the_scores_are_the_equation_of_the_paper(form, segment, memory):
    """Written out for a pair of steps: the four terms of section 3.3."""
    q, k, v, _, _, u, w, weight = inputs(B=1, H=1, T=10, D=4)
    angles = [10000 ** (-2 * c / 4) for c in range(2)]
    y = torch.zeros(10, 4, dtype=q.dtype)
    for i in range(10):
        first = max(0, i // segment * segment - memory)
        scores = []
        for j in range(first, i + 1):
            r = torch.tensor([(i - j) * angle for angle in angles], dtype=q.dtype)
            distance_key = weight[0] @ torch.cat([r.sin(), r.cos()])
            one, other = q[0, 0, i], k[0, 0, j]
            scores.append(one @ other + one @ distance_key + u[0] @ other + w[0] @ distance_key)
        y[i] = (torch.stack(scores) / 2).softmax(0) @ v[0, 0, first : i + 1]
    found = form(q, k, v, k, v, u, w, weight, segment=segment, memory=memory, causal=True)
    torch.testing.assert_close(found[0, 0], y)


@CAUSAL
def test_the_memorys_gradients_are_its_own(causal):
    """Keys and values of the memory are arguments with other gradients than the segment's."""
    q, k, v, _, _, *positions = inputs(T=23)
    memory = [randn(*k.shape, seed=seed) for seed in (1, 2)]
    options = {"segment": 5, "memory": 7, "causal": causal}
    given = [q, k, v, *memory, *positions]
    forms = (transformer_xl_attention_reference, transformer_xl_attention)
    expected, found = (form(*given, **options) for form in forms)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(y.square().sum(), given) for y in (expected, found)]
    torch.testing.assert_close(*gradients)
    of_memory = gradients[0][3]
    assert of_memory[:, :, :20].any() and not of_memory[:, :, 20:].any()  # the last segment is in no memory

"""Promises of Routing Transformer's attention beside the contract of every op."""

import pytest
import torch
import torch.nn.functional as F

from every_op import OPS
from fairseq_luna.ops.routing_attention import (
    cluster_sums,
    clusters_of,
    routing_attention,
    routing_attention_reference,
)
from support import assert_recorded, golden

FORMS = pytest.mark.parametrize("form", [routing_attention_reference, routing_attention], ids=["reference", "training"])


@FORMS
def test_equals_the_numbers_of_a_public_implementation(form):
    """It divides by the number of clusters of a step plus 1e-5. A third of its steps are in no cluster."""

    def attention(q, v, *, recorded):
        return form(q, v, recorded["centroids"], window=recorded["window"])

    out = assert_recorded("routing.pt", attention, "qv")
    assert 0.2 < (out == 0).all(-1).double().mean() < 0.5


def test_the_clusters_move_as_in_a_public_implementation():
    recorded = golden("routing.pt")
    centroids = recorded["centroids"]
    sums = cluster_sums(recorded["q"], centroids, window=recorded["window"])
    means = torch.where(sums.any(-1, keepdim=True), F.normalize(sums, dim=-1), centroids)
    found = recorded["decay"] * centroids + (1 - recorded["decay"]) * means
    torch.testing.assert_close(found, recorded["centroids_after"])


@FORMS
def test_one_cluster_is_softmax_attention_to_the_other_steps(form):
    q, v, centroids = OPS["routing-32"].make(T=20)
    others = ~torch.eye(20, dtype=torch.bool)
    expected = F.scaled_dot_product_attention(q, F.normalize(q, dim=-1), v, attn_mask=others)
    torch.testing.assert_close(form(q, v, centroids, window=32), expected)


def test_long_sentences_have_more_clusters_and_then_larger_ones():
    used, members = clusters_of(torch.tensor([0, 1, 8, 9, 48, 49]), 6, 8)
    assert used.tolist() == [1, 1, 1, 2, 6, 6]
    assert members.tolist() == [8, 8, 8, 8, 8, 9]


def test_padding_moves_no_cluster():
    q, _, centroids = OPS["routing-8"].make(T=30)
    mask = torch.zeros(3, 30, dtype=torch.bool)
    mask[0, :9] = mask[1, 4:8] = True
    sums = cluster_sums(q, centroids, window=8, padding=mask)
    alone = [cluster_sums(q[row : row + 1, :, ~mask[row]], centroids, window=8) for row in range(3)]
    torch.testing.assert_close(sums, torch.stack(alone).sum(0))

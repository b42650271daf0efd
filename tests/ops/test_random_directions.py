import math

import pytest
import torch

from fairseq_luna.ops.feature_maps import orthogonal_directions, positive_key_features_reference

SIZE, DRAWS = 4, 20_000


def drawn(count, size, seed=0):
    return orthogonal_directions(count, size, generator=torch.Generator().manual_seed(seed))


def test_positive_features_are_unbiased():
    """Each group of directions estimates ``exp(q k / sqrt(D))``."""
    q = torch.tensor([0.6, 0.3, -0.2, 0.1], dtype=torch.float64)
    k = torch.tensor([0.6, -0.2, 0.3, 0.1], dtype=torch.float64)
    directions = drawn(DRAWS * SIZE, SIZE).double()
    products = positive_key_features_reference(q, directions) * positive_key_features_reference(k, directions)
    found = (len(directions) * products).view(DRAWS, SIZE).mean(1)
    assert (found.mean() - math.exp(q @ k / SIZE**0.5)).abs() < 3 * found.std() / DRAWS**0.5


def test_directions_are_orthogonal_within_each_group():
    directions = drawn(20, 8)  # two groups and half of one
    for group in directions.split(8):
        products = group @ group.mT
        assert (products - products.diag().diag()).abs().max() < 1e-5


def test_norms_are_those_of_normal_vectors():
    squares = drawn(50_000, 8).square().sum(1)
    assert squares.mean().item() == pytest.approx(8, rel=0.02)
    assert squares.var().item() == pytest.approx(16, rel=0.05)

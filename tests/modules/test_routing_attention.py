"""Properties of Routing Transformer's module beside the contract of every attention."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.modules import RoutingAttention
from fairseq_luna.modules.routing_attention import DECAY
from fairseq_luna.ops.routing_attention import cluster_sums, routing_attention_reference
from fairseq_luna.usage_error import UsageError
from numeric import scattered_padding, sequences


def small(**options):
    torch.manual_seed(0)
    return RoutingAttention(embed_dim=8, num_heads=2, window=4, clusters=8, **options).double()


def project_heads(projection, x):
    return projection(x).unflatten(2, (2, 4)).permute(1, 2, 0, 3)


def test_it_is_the_formula():
    module, [x] = small(), sequences((30, 3, 8))
    mask = scattered_padding(3, 30)
    q, v = project_heads(module.q_proj, x), project_heads(module.v_proj, x)
    y = routing_attention_reference(q, v, module.centroids, window=4, padding=mask)
    expected = module.out_proj(y.permute(2, 0, 1, 3).flatten(2))
    torch.testing.assert_close(module(x, padding_mask=mask), expected)


def test_the_centroids_move_once_for_an_update():
    """A batch that is computed again, as with checkpointed activations, sees the same centroids and moves them once."""
    module, [x] = small(), sequences((30, 3, 8))
    before = module.centroids.clone()
    torch.testing.assert_close(module(x), module(x), rtol=0, atol=0)
    assert module.centroids.equal(before)
    module.set_num_updates(1)
    sums = cluster_sums(project_heads(module.q_proj, x), before, window=4)
    means = torch.where(sums.any(-1, keepdim=True), F.normalize(sums, dim=-1), before)
    assert not means.equal(before)
    torch.testing.assert_close(module.centroids, DECAY * before + (1 - DECAY) * means)
    after = module.centroids.clone()
    module.set_num_updates(2)  # without a batch
    assert module.centroids.equal(after)


def test_evaluation_moves_nothing():
    module, [x] = small().eval(), sequences((30, 3, 8))
    before = module.centroids.clone()
    module(x)
    module.set_num_updates(1)
    assert module.centroids.equal(before) and not module.batch_sums.any()


@pytest.mark.parametrize("options", [{"window": 0}, {"clusters": 0}])
def test_sizes_that_are_too_small_are_refused(options):
    with pytest.raises(UsageError, match="must be 1 or more"):
        RoutingAttention(embed_dim=8, num_heads=2, **options)

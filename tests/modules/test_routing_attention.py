"""Properties of Routing Transformer's module beside the contract of every attention."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.modules import RoutingAttention
from fairseq_luna.modules.routing_attention import CAUSAL_CLUSTERS, DECAY
from fairseq_luna.ops.routing_attention import (
    cluster_sums,
    routing_attention_reference,
    routing_causal_attention_reference,
)
from fairseq_luna.usage_error import UsageError
from numeric import scattered_padding, sequences

FORMS = pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])


def small(**options):
    torch.manual_seed(0)
    return RoutingAttention(embed_dim=8, num_heads=2, window=4, clusters=8, **options).double()


def project_heads(projection, x):
    return projection(x).unflatten(2, (2, 4)).permute(1, 2, 0, 3)


@FORMS
def test_it_is_the_formula(causal):
    module, [x] = small(causal=causal), sequences((30, 3, 8))
    mask = scattered_padding(3, 30)
    q, v = project_heads(module.q_proj, x), project_heads(module.v_proj, x)
    reference = routing_causal_attention_reference if causal else routing_attention_reference
    y = reference(q, v, module.centroids, window=4, padding=mask)
    expected = module.out_proj(y.permute(2, 0, 1, 3).flatten(2))
    actual = module(x, padding_mask=mask)
    torch.testing.assert_close(actual, expected)


@FORMS
def test_the_centroids_move_once_for_an_update(causal):
    """A batch that is computed again, as with checkpointed activations, sees the same centroids and moves them once."""
    module, [x] = small(causal=causal), sequences((30, 3, 8))
    before = module.centroids.clone()
    torch.testing.assert_close(module(x), module(x), rtol=0, atol=0)
    assert module.centroids.equal(before)
    module.set_num_updates(1)
    sums = cluster_sums(project_heads(module.q_proj, x), before, window=4, causal=causal)
    means = torch.where(sums.any(-1, keepdim=True), F.normalize(sums, dim=-1), before)
    assert not means.equal(before)
    torch.testing.assert_close(module.centroids, DECAY * before + (1 - DECAY) * means)
    after = module.centroids.clone()
    module.set_num_updates(2)  # without a batch
    assert module.centroids.equal(after)


def test_the_batches_of_an_update_have_the_same_centroids_and_move_them_together():
    """fairseq calls set_num_updates before each of them, with the same number."""
    one, two, [x] = small(), small(), sequences((30, 4, 8))
    before = one.centroids.clone()
    one(x)
    one.set_num_updates(1)
    for part in x.split(2, dim=1):
        two.set_num_updates(0)
        assert two.centroids.equal(before)
        two(part)
    two.set_num_updates(1)
    assert not one.centroids.equal(before)
    torch.testing.assert_close(two.centroids, one.centroids)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@FORMS
def test_the_centroids_of_a_model_in_half_precision_move_as_in_fp32(causal, dtype):
    """In bf16 themselves most of their numbers would never move: steps of 0.1 % are rounded away."""
    half, [x] = small(causal=causal).to(dtype), sequences((30, 3, 8), dtype=dtype)
    whole = small(causal=causal).to(dtype).float()
    whole.load_state_dict(half.state_dict())
    before = half.centroids.clone()
    assert half.q_proj.weight.dtype == dtype and before.dtype == torch.float32
    for update in range(20):
        for module in (half, whole):
            module(x.to(module.q_proj.weight.dtype))
            module.set_num_updates(update)
    moved, expected = half.centroids - before, whole.centroids - before
    assert expected.abs().max() > 5e-3
    assert (moved - expected).norm() < 0.1 * expected.norm()


def test_a_module_on_the_meta_device_gets_numbers_in_its_dtype():
    module = small().to("meta").half()
    assert module.centroids.is_meta and module.centroids.dtype == torch.float32
    assert module.to_empty(device="cpu").centroids.dtype == torch.float32


def test_a_training_resumes_with_the_sums_and_older_checkpoints_lack_them():
    module, [x] = small(), sequences((30, 3, 8))
    module(x)
    saved = {f"layer.{name}": value.clone() for name, value in module.state_dict().items()}
    resumed = small()
    resumed.load_state_dict({name[6:]: value for name, value in saved.items()})
    for each in (module, resumed):
        each.set_num_updates(5)
    assert resumed.centroids.equal(module.centroids)
    older = {name: value for name, value in saved.items() if "sums" not in name}
    resumed.upgrade_state_dict_named(older, "layer")
    assert older.keys() == saved.keys() and not older["layer.batch_sums"].any()


@torch.no_grad()
def test_the_first_and_the_last_steps_of_100000_tokens_equal_one_pass():
    """The state before the last 1,000 steps is written by hand; its shape is the same throughout."""
    module, [x] = small(causal=True).eval(), sequences((100_000, 1, 8))
    expected, state, shapes, found = module(x), None, set(), []
    for t in range(0, 2_000):
        y, state = module.step(x[t : t + 1], None, state)
        found.append(y)
        shapes.add(tuple(each.shape for each in state))
    torch.testing.assert_close(torch.cat(found), expected[:2_000])
    late = slice(99_000, 100_000)
    state = after(module, x[:99_000])
    y, state = module.step(x[late], None, state)
    shapes.add(tuple(each.shape for each in state))
    torch.testing.assert_close(y, expected[late])
    assert len(shapes) == 1 and state.steps.tolist() == [100_000] and (state.members.sum(-1) == 100_000).all()


def after(module, x):
    """The state of generation after ``x (T, 1, C)``, written at once: the latest members of each cluster."""
    q, v = project_heads(module.q_proj, x), project_heads(module.v_proj, x)
    _, state = module.step(x[:1], None, None)
    k, place = F.normalize(q, dim=-1), torch.arange(len(x))
    nearness = k @ module.centroids.mT
    cluster = nearness.masked_fill(torch.arange(8) > place[:, None] // 4, -torch.inf).argmax(-1)
    for head in range(2):
        for number in range(8):
            members = (cluster[0, head] == number).nonzero()[:, 0]
            state.members[0, head, number] = len(members)
            for n in range(max(0, len(members) - 4), len(members)):
                state.q[0, head, number, n % 4] = q[0, head, members[n]]
                state.v[0, head, number, n % 4] = v[0, head, members[n]]
    return state._replace(steps=torch.tensor([len(x)]))


def test_a_decoder_has_fewer_clusters():
    """Its state has memory for all members of each."""
    module = RoutingAttention(embed_dim=8, num_heads=2, causal=True)
    _, state = module.step(torch.zeros(1, 3, 8), None, None)
    assert state.q.shape == (3, 2, CAUSAL_CLUSTERS, 64, 4)


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

"""Random draws of feature maps and of Reformer: reproducible, and fixed in evaluation."""

import pytest
import torch
from fairseq.models import BaseFairseqModel

from fairseq_luna.modules import ReformerAttention
from fairseq_luna.modules.feature_maps import MATRICES, FourierFeatures, HedgehogFeatures, PositiveFeatures


def performer(seed=0, **options):
    torch.manual_seed(seed)
    return PositiveFeatures(**{"num_heads": 3, "head_size": 4, "redraw_features": 10, **options})


def rfa(seed=0, **options):
    torch.manual_seed(seed)
    return FourierFeatures(**{"num_heads": 3, "head_size": 4, "num_features": 5, **options})


def reformer(seed=0, **options):
    torch.manual_seed(seed)
    return ReformerAttention(**{"embed_dim": 8, "num_heads": 2, "chunk_size": 4, "redraw_features": 10, **options})


X = torch.randn(1, 3, 6, 4, generator=torch.Generator().manual_seed(0))  # vectors of heads
EVERY = pytest.mark.parametrize("build", [performer, reformer, rfa])
REDRAWN = pytest.mark.parametrize("build", [performer, reformer])


def trained(module, updates):
    """The directions after each of so many updates."""
    seen = []
    for update in range(updates):
        module.set_num_updates(update)
        seen.append(module.directions.clone())
    return seen


def test_default_numbers_of_features():
    assert PositiveFeatures(num_heads=2, head_size=8).directions.shape == (32, 8)
    assert FourierFeatures(num_heads=2, head_size=8).matrices.shape == (2, 64, 8)
    assert performer(num_features=7).directions.shape == (7, 4)
    assert reformer().directions.shape == (8, 4, 64)


@REDRAWN
def test_directions_are_redrawn_after_an_interval(build):
    module = build()
    first = module.directions.clone()
    seen = trained(module, 30)
    for start in (0, 10, 20):
        assert all(directions.equal(seen[start]) for directions in seen[start : start + 10])
    assert seen[0].equal(first) and not seen[0].equal(seen[10]) and not seen[10].equal(seen[20])


@REDRAWN
def test_evaluation_and_an_interval_of_0_redraw_nothing(build):
    for module in (build().eval(), build(redraw_features=0)):
        first = module.directions.clone()
        assert all(directions.equal(first) for directions in trained(module, 26))


@EVERY
def test_the_seed_decides_and_the_random_numbers_of_others_are_left_alone(build):
    one, other = (trained(build(), 30) for _ in range(2))
    assert all(map(torch.equal, one, other))
    assert not build(seed=1).directions.equal(one[0])  # as in the other layers of a model
    module, expected = build(), torch.get_rng_state()
    trained(module, 30)
    assert torch.get_rng_state().equal(expected)


@EVERY
def test_a_resumed_training_has_the_same_directions(build):
    whole = trained(build(), 30)
    interrupted, resumed = build(), build(seed=5)
    trained(interrupted, 20)
    resumed.set_num_updates(20)  # as fairseq does before it loads a checkpoint
    resumed.load_state_dict(interrupted.state_dict())
    if build is not rfa:  # which evaluates with others
        assert resumed.eval().directions.equal(whole[19])
        resumed.train()
    for update in range(20, 30):
        resumed.set_num_updates(update)
        assert resumed.directions.equal(whole[update])


def test_a_new_training_from_a_checkpoint_counts_its_own_updates():
    pretrained, module = performer(), performer(seed=5)
    trained(pretrained, 17)
    module.load_state_dict(pretrained.state_dict())
    module.set_num_updates(0)
    assert module.directions.equal(performer().directions)


def test_rfa_picks_one_of_its_matrices_for_each_head_in_every_update():
    module = rfa()
    pool, choices = module.matrices_by_number(range(MATRICES)), set()
    for directions in trained(module, 20):
        index = [int((pool == matrix).all((1, 2)).nonzero()) for matrix in directions]
        assert len(set(index)) == 3
        choices.add(tuple(index))
    assert len(choices) == 20


def test_rfa_evaluates_with_the_first_matrices_or_those_of_its_checkpoint():
    module, other = rfa(), rfa(seed=1)
    assert module.matrices.equal(module.matrices_by_number(range(3))) and not module.matrices.equal(other.matrices)
    before = module.eval()().map_keys(X)
    module.train().set_num_updates(7)
    assert not module().map_keys(X).equal(before) and module.eval()().map_keys(X).equal(before)
    other.load_state_dict(module.state_dict())
    assert other.eval()().map_keys(X).equal(before)


def test_rfas_checkpoints_without_a_seed_can_be_loaded():
    class Model(BaseFairseqModel):
        def __init__(self, seed):
            super().__init__()
            self.feature_map = rfa(seed)

    old, model = Model(0), Model(1)
    state = {name: tensor for name, tensor in old.state_dict().items() if name != "feature_map.seed"}
    model.load_state_dict(state)
    assert model.feature_map.matrices.equal(old.feature_map.matrices)
    assert model.feature_map.seed.equal(rfa(1).seed)


def test_hedgehogs_maps_start_as_the_identity():
    features = HedgehogFeatures(num_heads=3, head_size=4)()
    for found in (features.map_queries(X), features.map_keys(X)):
        torch.testing.assert_close(found, torch.cat([2 * X, -2 * X], -1).softmax(-1))

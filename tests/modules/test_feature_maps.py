"""What the feature maps draw at random: reproducible, and fixed in evaluation."""

import pytest
import torch
from fairseq.models import BaseFairseqModel

from fairseq_luna.modules.feature_maps import MATRICES, FourierFeatures, PositiveFeatures, normal_matrices


def performer(seed=0, **options):
    torch.manual_seed(seed)
    return PositiveFeatures(**{"num_heads": 3, "head_size": 4, "redraw_features": 10, **options})


def rfa(**options):
    return FourierFeatures(**{"num_heads": 3, "head_size": 4, "num_features": 5, **options})


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


def test_directions_are_redrawn_after_an_interval():
    module = performer()
    first = module.directions.clone()
    seen = trained(module, 30)
    for start in (0, 10, 20):
        assert all(directions.equal(seen[start]) for directions in seen[start : start + 10])
    assert seen[0].equal(first) and not seen[0].equal(seen[10]) and not seen[10].equal(seen[20])


def test_an_interval_of_0_never_redraws():
    module = performer(redraw_features=0)
    first = module.directions.clone()
    assert all(directions.equal(first) for directions in trained(module, 3))


def test_evaluation_redraws_nothing():
    module = performer()
    first = module.directions.clone()
    module.eval().set_num_updates(25)
    assert module.directions.equal(first)


def test_processes_with_the_same_seed_have_the_same_directions():
    one, other = (trained(performer(), 30) for _ in range(2))
    assert all(map(torch.equal, one, other))
    assert not performer(seed=1).directions.equal(one[0])


def test_layers_have_their_own_directions():
    module = performer()
    other = PositiveFeatures(num_heads=3, head_size=4)
    assert not other.directions.equal(module.directions)


def test_redrawing_leaves_the_random_numbers_of_others_alone():
    module = performer()
    expected = torch.get_rng_state()
    trained(module, 30)
    assert torch.get_rng_state().equal(expected)


def test_a_resumed_training_has_the_same_directions():
    whole = trained(performer(), 30)
    interrupted, resumed = performer(), performer(seed=5)
    trained(interrupted, 20)
    resumed.set_num_updates(20)  # as fairseq does before it loads a checkpoint
    resumed.load_state_dict(interrupted.state_dict())
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


def test_fairseq_tells_the_number_of_updates():
    class Model(BaseFairseqModel):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Sequential(performer())])

    model, alone = Model(), performer()
    model.set_num_updates(25)
    alone.set_num_updates(25)
    assert model.layers[0][0].directions.equal(alone.directions)
    assert not alone.directions.equal(performer().directions)


def test_rfa_picks_one_of_the_matrices_for_each_head_in_training():
    module = rfa()
    pool = normal_matrices(5, 4, torch.device("cpu"))
    assert pool.shape == (MATRICES, 5, 4)
    choices = set()
    for seed in range(20):
        torch.manual_seed(seed)
        picked = module.picked()
        index = [int((pool == matrix).all((1, 2)).nonzero()) for matrix in picked]
        assert len(set(index)) == 3
        torch.manual_seed(seed)
        assert module.picked().equal(picked)
        choices.add(tuple(index))
    assert len(choices) == 20


def test_rfa_evaluates_with_the_first_matrices_or_those_of_its_checkpoint():
    module, other = rfa().eval(), rfa().eval()
    assert module.picked().equal(normal_matrices(5, 4, torch.device("cpu"))[:3])
    module.matrices.neg_()
    assert not module.picked().equal(other.picked())
    other.load_state_dict(module.state_dict())
    assert other.picked().equal(module.picked())


def test_all_layers_share_rfas_matrices():
    rfa().picked()
    before = normal_matrices.cache_info()
    rfa().picked()
    after = normal_matrices.cache_info()
    assert (after.misses, after.currsize) == (before.misses, before.currsize)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: performer(num_features=0), "--num-features 0: must be 1 or more; leave it out for 16"),
        (lambda: rfa(num_features=-2), "--num-features -2: must be 1 or more; leave it out for 64"),
        (lambda: performer(redraw_features=-1), "--redraw-features -1: must be 1 or more updates; or 0: never"),
    ],
)
def test_numbers_that_are_too_small_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()

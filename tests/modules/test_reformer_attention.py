"""What Reformer's attention has beside what tests/models/mixed asks of every attention."""

import pytest
import torch

from fairseq_luna.modules import ReformerAttention
from fairseq_luna.usage_error import UsageError
from numeric import sequences


def build(seed=0, **options):
    torch.manual_seed(seed)
    return ReformerAttention(**{"embed_dim": 8, "num_heads": 2, "chunk_size": 4, "redraw_features": 10, **options})


def test_resumed_training_and_evaluation_have_the_directions_of_the_checkpoint():
    [x] = sequences((40, 2, 8), dtype=torch.float32)
    whole, resumed, seen = build(), build(seed=5), []
    assert whole.directions.shape == (8, 4, 64)
    for update in range(30):
        whole.set_num_updates(update)
        seen.append(whole.directions.clone())
        if update == 14:
            resumed.load_state_dict(whole.state_dict())
        if update > 14:
            resumed.set_num_updates(update)
            assert resumed.directions.equal(seen[-1])
    assert seen[0].equal(seen[9]) and not seen[0].equal(seen[10]) and not seen[10].equal(seen[20])
    before = whole.eval()(x)
    whole.set_num_updates(50)
    assert whole(x).equal(before)
    assert not build(seed=1).directions.equal(seen[0])  # as in the other layers of a model


def test_dropout_is_for_training():
    [x] = sequences((40, 2, 8), dtype=torch.float32)
    module = build(dropout=0.5)
    assert not module(x).equal(module(x))
    torch.testing.assert_close(module.eval()(x), build()(x))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_heads": 3}, "num_heads 3: must be 1 or more and divide embed_dim 8"),
        ({"num_hashes": 0}, "num_hashes 0: must be 1 or more"),
        ({"chunk_size": 0}, "chunk_size 0: must be 1 or more"),
        ({"redraw_features": -1}, "redraw_features -1: must be 1 or more updates; or 0: never"),
    ],
    ids=["heads", "hashes", "chunk", "redraw"],
)
def test_bad_values_are_refused(options, said):
    with pytest.raises(UsageError) as refused:
        build(**options)
    assert str(refused.value) == said

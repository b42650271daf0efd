import pytest
import torch

from fairseq_luna.ops.real_steps import in_own_segment, pack_left, positions, read_steps, real_first
from numeric import mixed_padding, randn


def test_real_steps_are_moved_together_and_back():
    x, mask = randn(3, 2, 40, 5, grad=False), mixed_padding(40)
    packed = pack_left(x, mask)
    for row in range(3):
        real = x[row][:, ~mask[row]]
        assert packed[row, :, : real.shape[1]].equal(real)
        assert not packed[row, :, real.shape[1] :].any()
    back = read_steps(packed, positions(mask))
    assert back.masked_fill(mask[:, None, :, None], 0).equal(x.masked_fill(mask[:, None, :, None], 0))
    assert torch.arange(40).expand(3, 40).equal(real_first(mask).sort(1).values)


@pytest.mark.parametrize("slots", [1, 7, 40, 60])
def test_segments_are_equal_parts_of_the_real_steps(slots):
    mask = mixed_padding(40)
    own = in_own_segment(mask, slots, 40, mask.device)
    for row in range(3):
        real = own[row][:, ~mask[row]]
        count = min(slots, real.shape[1])
        assert real.sum(0).eq(1).all()
        assert real[:count].any(1).all() and not real[count:].any()
        sizes = real[:count].sum(1)
        assert sizes.max() - sizes.min() <= 1
        assert real.int().argmax(0).diff().ge(0).all(), "segments are in order"
    whole = in_own_segment(None, slots, 40, mask.device)
    assert whole.equal(in_own_segment(torch.zeros(1, 40, dtype=torch.bool), slots, 40, mask.device))

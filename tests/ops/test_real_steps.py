import torch

from fairseq_luna.ops.real_steps import pack_left, positions, read_steps, real_first
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

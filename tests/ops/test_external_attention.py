import torch

from fairseq_luna.ops.external_attention import SlotMeans, update_slot_means
from numeric import randn


@torch.no_grad()
def test_precision_of_the_state_after_30000_steps():
    scores = 3 * randn(30_000, 1, 1, 4, dtype=torch.float32, grad=False)
    state = SlotMeans(torch.zeros(1, 1, 4), torch.zeros(1))
    for each in scores:
        state = update_slot_means(each, state, None)
    expected = scores.double().exp().mean(0).log()
    torch.testing.assert_close(state.log_mean.double(), expected, rtol=0, atol=5e-5)

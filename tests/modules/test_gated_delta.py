"""Properties of gated DeltaNet beside the contract of every attention."""

import torch

from fairseq_luna.modules import GatedDeltaAttention
from fairseq_luna.modules.state_space import decay_parameters
from numeric import sequences
from support import assert_published, golden


def test_equals_the_published_layer():
    recorded = golden("gated_delta.pt")
    module = GatedDeltaAttention(causal=True, **recorded["settings"], bias=False)
    module.load_state_dict(recorded["parameters"])
    assert_published(module, recorded, recorded["grads"])


@torch.no_grad()
def test_in_an_encoder_the_second_half_of_the_heads_reads_from_the_end():
    """Of three heads one reads ahead; the convolution sees three steps on each side."""
    module = GatedDeltaAttention(embed_dim=12, num_heads=3).double()
    module.out_proj = torch.nn.Identity()
    (x,) = sequences((30, 2, 12))
    changed = x.clone()
    changed[15] += 1
    seen = (module(changed) - module(x)).abs().amax(1).unflatten(1, (3, 4)).amax(2) > 0
    forwards, backwards = torch.arange(30) >= 12, torch.arange(30) <= 18
    assert seen.equal(torch.stack([forwards, forwards, backwards], dim=1))


def test_rates_of_forgetting_start_between_0_and_16_as_published():
    """Those of Mamba-2 are above 1."""
    torch.manual_seed(0)
    drawn = torch.cat([GatedDeltaAttention(causal=True, embed_dim=64, num_heads=64).A_log.detach() for _ in range(40)])
    rates = drawn.exp()
    assert drawn.isfinite().all() and rates.max() <= 16 and (rates < 1).sum() > 100
    torch.testing.assert_close(rates.mean(), torch.tensor(8.0), rtol=0.05, atol=0)


def test_a_rate_that_is_drawn_as_0_has_a_logarithm(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda x, least, _: x.fill_(least))
    rates = decay_parameters(3, 0.0, 16.0)[1]
    assert rates.isfinite().all() and rates.exp().max() < 1e-30

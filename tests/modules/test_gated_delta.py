"""What gated DeltaNet has beside the contract of every attention."""

import torch

from fairseq_luna.modules import GatedDeltaAttention, GatedDeltaCausalAttention
from numeric import sequences
from support import assert_published, golden


def test_equals_the_published_layer():
    recorded = golden("gated_delta.pt")
    module = GatedDeltaCausalAttention(**recorded["settings"], bias=False)
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

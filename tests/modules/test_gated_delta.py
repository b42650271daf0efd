"""What gated DeltaNet has beside the contract of every attention."""

import torch

from fairseq_luna.modules import GatedDeltaAttention, GatedDeltaCausalAttention
from numeric import sequences
from support import golden

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def test_equals_the_published_layer():
    recorded = golden("gated_delta.pt")
    module, x = GatedDeltaCausalAttention(**recorded["settings"], bias=False), recorded["x"].clone().requires_grad_()
    module.load_state_dict(recorded["parameters"])
    out = module(x.transpose(0, 1)).transpose(0, 1)
    torch.testing.assert_close(out, recorded["output"], **CLOSE)
    parameters = dict(module.named_parameters())
    own = torch.autograd.grad(out, [x, *parameters.values()], recorded["grad_output"])
    torch.testing.assert_close(own, (recorded["grad_x"], *(recorded["grads"][name] for name in parameters)), **CLOSE)


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

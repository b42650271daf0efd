"""What gated RFA has beside the contract of every attention."""

import torch

from fairseq_luna.modules import GatedRfaCausalAttention
from numeric import sequences
from support import assert_published, golden

UNDER_OUR_NAMES = {"g_proj.weight": "gate_proj.weight", "g_proj.bias": "gate_proj.bias", "sigma": "feature_map.sigma"}


def test_equals_the_authors_numbers():
    """Some of the sums of weights are below the bound, and some above."""
    recorded = golden("gated_rfa.pt")
    module = GatedRfaCausalAttention(**{name: recorded[name] for name in ("embed_dim", "num_heads", "num_features")})
    theirs = recorded["state_dict"] | {"feature_map.matrices": recorded["random_matrices"]}
    theirs["feature_map.seed"] = torch.tensor(0)
    module.eval().load_state_dict({UNDER_OUR_NAMES.get(name, name): value for name, value in theirs.items()})
    grads = recorded["grads"] | {"sigma": recorded["grad_sigma"]}
    batch_first = {name: recorded[name].transpose(0, 1) for name in ("x", "output", "grad_output", "grad_x")}
    assert_published(module, batch_first, {UNDER_OUR_NAMES.get(name, name): grad for name, grad in grads.items()})


def test_at_first_a_step_keeps_about_nine_tenths():
    module, [x] = GatedRfaCausalAttention(embed_dim=32, num_heads=4), sequences((20, 2, 32), dtype=torch.float32)
    kept = module.parts(x)[-1].exp()
    torch.testing.assert_close(kept, torch.full_like(kept, 0.9), rtol=0.1, atol=0)

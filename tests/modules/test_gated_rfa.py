"""Properties of gated RFA beside the contract of every attention."""

import pytest
import torch

from fairseq_luna.modules import GatedRfaAttention
from fairseq_luna.ops.decay_attention import decay_attention
from numeric import sequences
from support import assert_published, golden

UNDER_OUR_NAMES = {"g_proj.weight": "gate_proj.weight", "g_proj.bias": "gate_proj.bias", "sigma": "feature_map.sigma"}


def test_equals_the_authors_numbers():
    """Some of the sums of weights are below the bound, and some above."""
    recorded = golden("gated_rfa.pt")
    module = GatedRfaAttention(
        causal=True, **{name: recorded[name] for name in ("embed_dim", "num_heads", "num_features")}
    )
    theirs = recorded["state_dict"] | {"feature_map.matrices": recorded["random_matrices"]}
    theirs["feature_map.seed"] = torch.tensor(0)
    module.eval().load_state_dict({UNDER_OUR_NAMES.get(name, name): value for name, value in theirs.items()})
    grads = recorded["grads"] | {"sigma": recorded["grad_sigma"]}
    batch_first = {name: recorded[name].transpose(0, 1) for name in ("x", "output", "grad_output", "grad_x")}
    assert_published(module, batch_first, {UNDER_OUR_NAMES.get(name, name): grad for name, grad in grads.items()})


def test_at_first_a_step_keeps_about_nine_tenths():
    module, [x] = GatedRfaAttention(causal=True, embed_dim=32, num_heads=4), sequences((20, 2, 32), dtype=torch.float32)
    kept = module.features_values_and_decay(x)[-1].exp()
    torch.testing.assert_close(kept, torch.full_like(kept, 0.9), rtol=0.1, atol=0)


def drawn(num_features):
    torch.manual_seed(0)
    return GatedRfaAttention(causal=True, embed_dim=64, num_heads=2, num_features=num_features).eval()


@pytest.mark.parametrize("num_features", [8, 16, 64, 256])
def test_few_sums_are_below_their_bound_with_any_number_of_features(num_features):
    """The authors' bound, 0.1, would be above most sums of 16 features, and above all of 8."""
    module, [x] = drawn(num_features), sequences((60, 4, 64), dtype=torch.float32)
    sums = decay_attention(*module.features_values_and_decay(x))[..., -1][:, :, 20:]
    assert (sums < module.least_sum).float().mean() < 0.1
    outputs = decay_attention(*module.features_values_and_decay(x))
    torch.testing.assert_close(
        module(x), module.project_output(outputs[..., :-1] / outputs[..., -1:].clamp(min=num_features / 640))
    )


def test_a_state_from_before_the_bound_was_scaled_keeps_its_numbers():
    new, [x] = drawn(16), sequences((30, 2, 64), dtype=torch.float32)
    state = new.state_dict()
    del state["bound_by_features"]
    old, resumed = drawn(16), drawn(16)
    old.load_state_dict(state)
    resumed.load_state_dict(old.state_dict())
    assert old.least_sum == resumed.least_sum == 0.1
    torch.testing.assert_close(old(x), resumed(x))
    assert (old(x) - new(x)).abs().max() > 0.05
    resumed.load_state_dict(new.state_dict())
    torch.testing.assert_close(resumed(x), new(x))


def test_with_the_default_number_of_features_the_bound_is_the_authors():
    assert GatedRfaAttention(causal=True, embed_dim=8, num_heads=2).least_sum == 0.1

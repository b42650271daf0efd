"""Transformer-XL's module against numbers of the authors' layer, and what it promises beside the contract."""

import pytest
import torch

from fairseq_luna.modules import SoftmaxAttention, TransformerXLAttention
from fairseq_luna.usage_error import UsageError
from numeric import sequences
from support import assert_published, golden


def recorded_module(recorded):
    """The authors' parameters under our names."""
    options = {name: recorded[name] for name in ("embed_dim", "num_heads", "segment", "memory")}
    module = TransformerXLAttention(causal=True, bias=False, **options).eval()
    theirs = recorded["state_dict"]
    module.load_state_dict(ours(theirs) | {"content_bias": recorded["u"], "position_bias": recorded["v"]})
    return module


def ours(theirs):
    """A dictionary by the authors' names, as one by our names."""
    q, k, v = theirs["qkv_net.weight"].chunk(3)
    weights = {"q": q, "k": k, "v": v, "out": theirs["o_net.weight"], "position": theirs["r_net.weight"]}
    return {f"{name}_proj.weight": weight for name, weight in weights.items()}


def test_equals_the_numbers_of_the_authors_layer_over_four_segments():
    """The gradients too: of steps in a memory only the projections get one."""
    recorded = golden("transformer_xl.pt")
    batch_first = {name: recorded[name].transpose(0, 1) for name in ("x", "output", "grad_output", "grad_x")}
    biases = {"content_bias": recorded["grad_u"], "position_bias": recorded["grad_v"]}
    assert_published(recorded_module(recorded), batch_first, ours(recorded["grads"]) | biases)


@torch.no_grad()
def test_one_step_at_a_time_equals_the_authors_layer():
    recorded = golden("transformer_xl.pt")
    module, state, steps = recorded_module(recorded), None, []
    for x in recorded["x"].split(1):
        y, state = module.step(x, None, state)
        steps.append(y)
    torch.testing.assert_close(torch.cat(steps), recorded["output"], rtol=1e-4, atol=1e-5)


def test_no_gradient_reaches_the_input_through_the_memory():
    module, [x] = (
        TransformerXLAttention(causal=True, embed_dim=8, num_heads=2, segment=4, memory=6),
        sequences((12, 2, 8)),
    )
    y = module.double()(x.requires_grad_())
    (found,) = torch.autograd.grad(y[8:].square().sum(), x, retain_graph=True)
    assert not found[:8].any() and found[8:].any()
    with torch.no_grad():  # though it is seen
        changed = x.clone()
        changed[2] += 1
        assert (module(changed)[8:] - y[8:]).abs().max() > 1e-4


def test_with_parameters_at_zero_a_segment_is_softmax_attention():
    """So a converted transformer starts where it was, for sentences of at most one segment."""
    options = {"embed_dim": 8, "num_heads": 2, "causal": True}
    softmax, module = SoftmaxAttention(**options), TransformerXLAttention(segment=12, **options)
    missing = module.load_state_dict(softmax.state_dict(), strict=False).missing_keys
    assert {name.removesuffix(".weight") for name in missing} == module.conversion_rules.keys()
    with torch.no_grad():
        for name in missing:
            module.get_parameter(name).zero_()
    [x] = sequences((12, 2, 8), dtype=torch.float32)
    torch.testing.assert_close(module(x), softmax(x))


@pytest.mark.parametrize(("options", "named"), [({"segment": 0}, "segment 0"), ({"memory": -1}, "memory -1")])
def test_sizes_that_are_too_small_are_refused(options, named):
    with pytest.raises(UsageError, match=named):
        TransformerXLAttention(embed_dim=8, num_heads=2, **options)

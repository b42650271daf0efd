"""The kernel attentions against numbers of the published implementations."""

from functools import partial

import pytest
import torch

from every_attention import in_steps
from fairseq_luna.modules import KernelAttention, KernelCrossAttention
from fairseq_luna.modules.feature_maps import (
    EluFeatures,
    FourierFeatures,
    HedgehogFeatures,
    PositiveFeatures,
    SoftmaxFeatures,
)
from support import CLOSE, golden

OURS = ("q_proj", "k_proj", "v_proj", "out_proj")
# The map of each, and how its implementation calls our parameters.
PUBLISHED = {
    "linear": (EluFeatures, ("query_projection", "key_projection", "value_projection", "out_projection")),
    "performer": (PositiveFeatures, ("to_q", "to_k", "to_v", "to_out")),
    "rfa": (FourierFeatures, OURS),
    "efficient": (SoftmaxFeatures, ("queries", "keys", "values", "reprojection")),
    "hedgehog": (HedgehogFeatures, ("q_proj", "k_proj", "v_proj", "o_proj")),
}
KINDS = {
    "self": KernelAttention,
    "causal": partial(KernelAttention, causal=True),
    "source_attention": KernelCrossAttention,
}
# The authors of efficient attention have no causal form, flash-linear-attention has no other.
ONE_KIND = {"efficient": "self", "hedgehog": "causal"}
RECORDED = [(name, kind) for name in PUBLISHED for kind in KINDS if ONE_KIND.get(name, kind) == kind]
# Hedgehog's maps, which all heads share there.
SHARED = {f"{which}_{part}": f"feature_map_{which}.layer.{part}" for which in "qk" for part in ("weight", "bias")}


def parameters(name, recorded, wanted):
    """The authors' parameters under our names."""
    theirs = recorded["state_dict"] | {
        "feature_map.directions": recorded["state_dict"].get("fast_attention.projection_matrix"),
        "feature_map.matrices": recorded.get("random_matrices"),
        "feature_map.sigma": recorded["state_dict"].get("sigma"),
        "feature_map.seed": torch.tensor(0),
    }
    if name == "hedgehog":
        for own, other in SHARED.items():
            theirs[f"feature_map.{own}"] = theirs[other].expand(recorded["num_heads"], *theirs[other].shape)
    names = dict(zip(OURS, PUBLISHED[name][1], strict=True))
    for parameter in wanted:
        part, kind = parameter.split(".")
        value = theirs[f"{names.get(part, part)}.{kind}"]
        yield parameter, value[..., 0, 0] if value.dim() == 4 else value  # convolutions of 1 x 1


def build(name, kind, recorded):
    options = {key: recorded[key] for key in ("embed_dim", "num_heads", "num_features") if key in recorded}
    bias = name != "hedgehog"
    module = KINDS[kind](feature_map=PUBLISHED[name][0], bias=bias, **options).eval()
    assert ("k_proj.bias" in module.state_dict()) == (name not in ("efficient", "hedgehog"))
    module.load_state_dict(dict(parameters(name, recorded, module.state_dict())))
    return module


def call(module, x, source, lengths):
    """Batch first, as recorded; the source is padded on the right."""
    if not isinstance(module, KernelCrossAttention):
        return module(x.transpose(0, 1)).transpose(0, 1)
    mask = None if lengths is None else torch.arange(source.shape[1]) >= lengths[:, None]
    return module(x.transpose(0, 1), source.transpose(0, 1), source_padding_mask=mask)[0].transpose(0, 1)


@pytest.mark.parametrize(("name", "kind"), RECORDED, ids=["-".join(pair) for pair in RECORDED])
def test_equals_the_authors_numbers(name, kind):
    recorded = golden(f"{name}.pt")
    module, expected = build(name, kind, recorded), recorded[kind]
    inputs = {"x": recorded["x"].clone().requires_grad_()}
    if kind == "source_attention":
        inputs["source"] = recorded["source"].clone().requires_grad_()
    out = call(module, inputs["x"], inputs.get("source"), recorded.get("source_lengths"))
    torch.testing.assert_close(out, expected["output"], **CLOSE)
    if name == "rfa":
        inputs["sigma"] = module.feature_map.sigma
    gradients = torch.autograd.grad(out, list(inputs.values()), recorded["grad_output"])
    for which, gradient in zip(inputs, gradients, strict=True):
        torch.testing.assert_close(gradient, expected[f"grad_{which}"], **CLOSE)


def test_the_gradients_of_hedgehogs_maps_equal_the_recorded_numbers_of_a_public_one():
    recorded = golden("hedgehog.pt")
    module = build("hedgehog", "causal", recorded)
    call(module, recorded["x"], None, None).backward(recorded["grad_output"])
    for ours, theirs in SHARED.items():
        found = getattr(module.feature_map, ours).grad.sum(0)
        torch.testing.assert_close(found, recorded["causal"][f"grad_{theirs}"], **CLOSE)


def test_one_step_at_a_time_equals_the_authors_recurrent_linear_attention():
    recorded = golden("linear.pt")
    module = build("linear", "causal", recorded)
    steps = in_steps(module, recorded["x"].transpose(0, 1)).transpose(0, 1)
    torch.testing.assert_close(steps, recorded["causal"]["steps"], **CLOSE)


def test_rfas_bound_is_reached_in_the_recorded_numbers():
    recorded = golden("rfa.pt")
    module = build("rfa", "causal", recorded)
    q, k, _ = module.features_and_values(recorded["x"].transpose(0, 1))
    reached = (q * k.cumsum(2)).sum(-1) < 1
    assert 0.3 < reached.double().mean() < 0.6

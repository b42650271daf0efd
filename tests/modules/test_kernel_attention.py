"""What the five kernel attentions have beside the contract of every attention."""

import pytest
import torch

from fairseq_luna.modules import KernelAttention, KernelCausalAttention, KernelSourceAttention
from fairseq_luna.modules.feature_maps import (
    EluFeatures,
    FourierFeatures,
    HedgehogFeatures,
    PositiveFeatures,
    SoftmaxFeatures,
)
from numeric import PADDED, scattered_padding, sequences

SIZE, HEADS, SOURCE_SIZE = 16, 4, 12
FEATURE_MAPS = {
    "linear": {"feature_map": EluFeatures},
    "performer": {"feature_map": PositiveFeatures},
    "rfa": {"feature_map": FourierFeatures, "num_features": 24},
    "efficient": {"feature_map": SoftmaxFeatures},
    "hedgehog": {"feature_map": HedgehogFeatures},
}
NAMES = pytest.mark.parametrize("name", FEATURE_MAPS)
KINDS = {"encoder": KernelAttention, "decoder": KernelCausalAttention, "source": KernelSourceAttention}
PLACES = pytest.mark.parametrize("place", KINDS)


def build(name, place="decoder", dtype=torch.float64):
    """A module in evaluation, where RFA's directions are fixed."""
    torch.manual_seed(0)
    options = {"source_dim": SOURCE_SIZE} if place == "source" else {}
    return KINDS[place](embed_dim=SIZE, num_heads=HEADS, **FEATURE_MAPS[name], **options).to(dtype).eval()


def inputs(dtype=torch.float64):
    """x and a source."""
    return sequences((40, 2, SIZE), (30, 2, SOURCE_SIZE), dtype=dtype)


@NAMES
@PADDED
def test_the_weights_give_the_output(name, padded):
    module, (x, source) = build(name, "source"), inputs()
    mask = scattered_padding(2, 30) if padded else None
    out, weights = module(x, source, source_padding_mask=mask, need_weights=True)
    v = module.heads_of(module.v_proj, source)
    torch.testing.assert_close(module.output(weights.transpose(0, 1) @ v), out)
    if name == "rfa":
        assert (weights.sum(-1) < 1 + 1e-9).all() and (weights < 0).any()


def test_hedgehogs_features_start_with_the_projections_themselves():
    module, (x, _) = build("hedgehog"), inputs()
    found = module.features_and_values(x)
    for projection, features in zip((module.q_proj, module.k_proj), found[:2], strict=True):
        projected = 2 * module.heads_of(projection, x)
        torch.testing.assert_close(features, torch.cat([projected, -projected], -1).softmax(-1))

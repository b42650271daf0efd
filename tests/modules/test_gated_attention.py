"""Properties of the gated attention unit beside the contract of every attention."""

from functools import partial

import pytest
import torch

from fairseq_luna.modules import GatedAttention
from fairseq_luna.ops.mixed_chunk_attention import mixed_chunk_attention
from support import CLOSE, assert_published, golden

KINDS = {"self": GatedAttention, "causal": partial(GatedAttention, causal=True)}


def published(module, x, padding_mask):
    """The published causal form: of the earlier chunks it reads the sum of their means, where ours reads the mean."""
    (q, k, far_q, far_k, v), gate = module.project_copies_and_gate(x)
    earlier = torch.arange(len(x)) // module.chunk_size
    y = mixed_chunk_attention(
        *(q, k, far_q * earlier[:, None], far_k, v, module.distance_bias), chunk_size=module.chunk_size, causal=True
    )
    return module.gate_and_project(y, gate)


@pytest.mark.parametrize("name", KINDS)
def test_equals_the_published_numbers(name):
    file = golden("flash.pt")
    recorded, module = file[name], KINDS[name](**file["settings"])
    module.load_state_dict(recorded["parameters"])
    assert_published(module, recorded, recorded["grads"], run=None if name == "self" else partial(published, module))
    if name == "causal":  # the difference is the number of earlier chunks: none in the first two chunks
        out, theirs = module(recorded["x"].transpose(0, 1)), recorded["output"].transpose(0, 1)
        torch.testing.assert_close(out[:10], theirs[:10], **CLOSE)
        assert not out[10:].allclose(theirs[10:], **CLOSE)

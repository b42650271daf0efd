"""What the gated attention unit has beside the contract of every attention."""

import pytest
import torch

from fairseq_luna.modules import GatedAttention, GatedCausalAttention
from fairseq_luna.ops.mixed_chunk_attention import mixed_chunk_attention
from support import golden

KINDS = {"self": GatedAttention, "causal": GatedCausalAttention}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def published(module, x):
    """The published causal form: of the earlier chunks it reads the sum of their means, where ours reads the mean."""
    (q, k, far_q, far_k, v), gate = module.parts(x)
    earlier = torch.arange(len(x)) // module.chunk_size
    y = mixed_chunk_attention(
        *(q, k, far_q * earlier[:, None], far_k, v, module.distance_bias), chunk_size=module.chunk_size, causal=True
    )
    return module.gated(y, gate)


@pytest.mark.parametrize("name", KINDS)
def test_equals_the_published_numbers(name):
    file = golden("flash.pt")
    recorded, module = file[name], KINDS[name](**file["settings"])
    module.load_state_dict(recorded["parameters"])
    x = recorded["x"].clone().requires_grad_()
    steps = x.transpose(0, 1)
    out = (module(steps) if name == "self" else published(module, steps)).transpose(0, 1)
    torch.testing.assert_close(out, recorded["output"], **CLOSE)
    parameters = dict(module.named_parameters())
    own = torch.autograd.grad(out, [x, *parameters.values()], recorded["grad_output"])
    torch.testing.assert_close(own, (recorded["grad_x"], *(recorded["grads"][key] for key in parameters)), **CLOSE)
    if name == "causal":  # the difference is the number of earlier chunks: none in the first two chunks
        torch.testing.assert_close(module(steps)[:10].transpose(0, 1), recorded["output"][:, :10], **CLOSE)
        assert not module(steps)[10:].transpose(0, 1).allclose(recorded["output"][:, 10:], **CLOSE)

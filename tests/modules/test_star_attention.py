"""Star-Transformer's module against numbers of the authors' two attentions."""

import pytest
import torch

from fairseq_luna.modules import StarAttention
from fairseq_luna.ops.masked_softmax import masked_mean
from fairseq_luna.ops.padding import Padding
from fairseq_luna.ops.star_attention import star_attention, star_attention_reference
from numeric import scattered_padding, sequences
from support import CLOSE, golden

NAMES = {"WQ": "q_proj", "WK": "k_proj", "WV": "v_proj", "WO": "out_proj"}
PREFIXES = {"ring": "", "star": "relay_"}


@pytest.fixture
def published():
    """The recorded numbers, and our module with their parameters."""
    recorded = golden("star.pt")
    module = StarAttention(embed_dim=recorded["embed_dim"], num_heads=recorded["num_heads"]).eval()
    theirs = [(*name.split("."), value) for name, value in recorded["state_dict"].items()]
    module.load_state_dict({f"{PREFIXES[which]}{NAMES[part]}.{kind}": x for which, part, kind, x in theirs})
    x, relay = (recorded[name].transpose(0, 1).clone().requires_grad_() for name in ("x", "relay"))
    return recorded, module, x, relay


def assert_recorded(out, inputs, recorded):
    torch.testing.assert_close(out, recorded["output"].transpose(0, 1), **CLOSE)
    found = torch.autograd.grad(out, inputs, recorded["grad_output"].transpose(0, 1))
    expected = [recorded[name].transpose(0, 1) for name in ("grad_x", "grad_relay")]
    torch.testing.assert_close(list(found), expected, **CLOSE)


def test_the_relay_has_the_authors_numbers(published):
    recorded, module, x, relay = published
    assert_recorded(module.relay(relay, x, Padding()), (x, relay), recorded["star"])


@pytest.mark.parametrize("form", [star_attention_reference, star_attention], ids=["reference", "training"])
def test_the_words_have_the_authors_numbers_but_for_the_ends(form, published):
    """Their first and last word see a key of zeros too; the recorded gradients are of the others."""
    recorded, module, x, relay = published
    relay_k, relay_v = (module.project_heads(projection, relay) for projection in (module.k_proj, module.v_proj))
    out = module.project_output(form(*module.queries_keys_values(x), relay_k, relay_v))
    theirs = recorded["ring"]["output"].transpose(0, 1)
    assert (out - theirs)[[0, -1]].abs().amax((1, 2)).min() > 1e-3
    inner = torch.cat([theirs[:1] * 0, torch.ones_like(theirs[1:-1]), theirs[-1:] * 0])
    expected = {**recorded["ring"], "output": (theirs * inner).transpose(0, 1)}
    assert_recorded(out * inner, (x, relay), expected)


def test_it_is_the_formula_with_padding_anywhere():
    module, [x] = StarAttention(embed_dim=8, num_heads=2).double(), sequences((20, 3, 8))
    mask = scattered_padding(3, 20)
    out = module(x, padding_mask=mask)
    for row in range(3):
        real = x[~mask[row], row : row + 1]
        relay = module.relay(masked_mean(real, mask[row : row + 1, :0].new_zeros(1, len(real)))[None], real, Padding())
        relay_k, relay_v = (module.project_heads(projection, relay) for projection in (module.k_proj, module.v_proj))
        y = star_attention_reference(*module.queries_keys_values(real), relay_k, relay_v)
        torch.testing.assert_close(out[~mask[row], row : row + 1], module.project_output(y))

"""Properties of Fastformer's attention beside the contract of every attention."""

import itertools
from functools import partial

import pytest
import torch

from fairseq_luna.modules import FastformerAttention
from fairseq_luna.modules.fastformer_attention import COMBINE_CHOICES, RESIDUAL_CHOICES, SHARE_CHOICES
from fairseq_luna.modules.multihead import merge_heads
from fairseq_luna.ops.fastformer_attention import (
    fastformer_attention_reference,
    fastformer_causal_attention_reference,
)
from numeric import PADDED, assert_same_function, scattered_padding, sequences
from support import CLOSE, golden

KINDS = {"bidirectional": FastformerAttention, "causal": partial(FastformerAttention, causal=True)}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
CHOICES = [*itertools.product(COMBINE_CHOICES, RESIDUAL_CHOICES, SHARE_CHOICES, [0])]
CHOICES.append(("product", "query", "query-value", 5))
EVERY_CHOICE = pytest.mark.parametrize("chosen", CHOICES, ids=["-".join(map(str, chosen)) for chosen in CHOICES])
# The authors' names of our parameters. Their scores also have a bias, which a softmax over time cancels.
AUTHORS_NAMES = {
    "q_proj": "query",
    "k_proj": "key",
    "query_score": "query_att",
    "key_score": "key_att",
    "out_proj": "transform",
}


def build(kind=FastformerAttention, size=16, heads=4, kernel_size=0, **options):
    torch.manual_seed(0)
    module = kind(embed_dim=size, num_heads=heads, **options)
    module.convolve(kernel_size)
    return module.double()


def inputs(steps=40, batch=2):
    return sequences((steps, batch, 16))[0]


def test_equals_the_authors_numbers():
    recorded = golden("fastformer.pt")
    module, theirs = build(size=recorded["embed_dim"], heads=recorded["num_heads"]).float(), recorded["state_dict"]
    names = {name: name.split(".") for name in module.state_dict()}
    assert names.keys().isdisjoint({"query_score.bias", "key_score.bias"})
    module.load_state_dict({name: theirs[f"{AUTHORS_NAMES[map_]}.{kind}"] for name, (map_, kind) in names.items()})
    hidden, mask = recorded["hidden_states"].clone().requires_grad_(), recorded["padding_mask"]
    out = module(hidden.transpose(0, 1), padding_mask=mask).transpose(0, 1)
    (gradient,) = torch.autograd.grad(out, hidden, recorded["grad_output"])
    torch.testing.assert_close(out[~mask], recorded["output"][~mask], **CLOSE)
    torch.testing.assert_close(gradient[~mask], recorded["grad_hidden_states"][~mask], **CLOSE)


@EVERY_KIND
@EVERY_CHOICE
@PADDED
def test_equals_the_naive_form(kind, chosen, padded):
    combine, residual, share, kernel_size = chosen
    module = build(kind, combine=combine, residual=residual, share=share, kernel_size=kernel_size)
    causal = module.causal
    x, mask = inputs(), scattered_padding(2, 40) if padded else None
    out, convolved = module(x, padding_mask=mask), x
    if module.convolution:
        given = {"padding": mask}
        convolved = module.convolution.causal(x, **given)[0] if causal else module.convolution.centered(x, **given)
    q, k, v = module.queries_keys_values(convolved)
    attention = fastformer_causal_attention_reference if causal else fastformer_attention_reference
    u, global_query = attention(q, k, v, module.learned_maps(), padding=mask)
    expected = module.out_proj(merge_heads(u)) + merge_heads(q if residual == "query" else global_query)
    assert_same_function(out, expected, [x, *module.parameters()])


@pytest.mark.parametrize("kernel_size", [0, 1], ids=["plain", "convolution"])
def test_the_causal_one_loads_a_bidirectional_state_dict_and_equals_it_for_one_step(kernel_size):
    module, other = build(KINDS["causal"], kernel_size=kernel_size), build(kernel_size=kernel_size)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    module.load_state_dict(other.state_dict())
    x = inputs()
    torch.testing.assert_close(module(x[:1]), other(x[:1]))
    assert (module(x)[-1] - other(x)[-1]).abs().max() > 1e-4

import pytest
import torch

from fairseq_luna.modules.fastformer_attention import FastformerAttention
from fairseq_luna.modules.fastformer_projections import COMBINE_CHOICES, RESIDUAL_CHOICES, SHARE_CHOICES
from fairseq_luna.modules.heads import merge_heads
from fairseq_luna.ops.fastformer_attention import naive
from numeric import PADDED, scattered_padding, sequences
from support import golden

COMBINE = pytest.mark.parametrize("combine", COMBINE_CHOICES)
RESIDUAL = pytest.mark.parametrize("residual", RESIDUAL_CHOICES)
SHARE = pytest.mark.parametrize("share", SHARE_CHOICES)
# The authors' names of our parameters. Their scores also have a bias, which a softmax over time cancels.
AUTHORS_NAMES = {
    "q_proj": "query",
    "k_proj": "key",
    "query_score": "query_att",
    "key_score": "key_att",
    "out_proj": "transform",
}


def build(size=16, heads=4, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    return FastformerAttention(embed_dim=size, num_heads=heads, **options).to(dtype)


def inputs(steps=40, batch=2, size=16, dtype=torch.float64):
    return sequences((steps, batch, size), dtype=dtype)[0]


def load_authors_parameters(module, state_dict):
    names = {name: name.split(".") for name in module.state_dict()}
    module.load_state_dict({name: state_dict[f"{AUTHORS_NAMES[map_]}.{kind}"] for name, (map_, kind) in names.items()})


def test_equals_the_authors_numbers():
    recorded = golden("fastformer.pt")
    module = build(recorded["embed_dim"], recorded["num_heads"], torch.float32)
    load_authors_parameters(module, recorded["state_dict"])
    hidden, mask = recorded["hidden_states"].clone().requires_grad_(), recorded["padding_mask"]
    out = module(hidden.transpose(0, 1), padding_mask=mask).transpose(0, 1)
    (gradient,) = torch.autograd.grad(out, hidden, recorded["grad_output"])
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(out[~mask], recorded["output"][~mask], **close)
    torch.testing.assert_close(gradient[~mask], recorded["grad_hidden_states"][~mask], **close)


@COMBINE
@RESIDUAL
@SHARE
@PADDED
def test_equals_the_naive_form(combine, residual, share, padded):
    module = build(combine=combine, residual=residual, share=share)
    x, mask = inputs(), scattered_padding(2, 40) if padded else None
    out = module(x, padding_mask=mask)
    q, k, v = module.queries_keys_values(x)
    u, global_query = naive.fastformer_attention(q, k, v, module.maps(), padding_mask=mask)
    expected = module.out_proj(merge_heads(u)) + merge_heads(q if residual == "query" else global_query)
    torch.testing.assert_close(out, expected)
    wanted = [x, *module.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(out.square().sum(), wanted), torch.autograd.grad(expected.square().sum(), wanted)
    )


@COMBINE
def test_padding_has_no_effect_at_any_position(combine):
    module = build(combine=combine)
    x, mask = inputs(), scattered_padding(2, 40)
    out = module(x, padding_mask=mask)
    for row in range(2):
        real = ~mask[row]
        torch.testing.assert_close(out[real, row], module(x[real, row : row + 1])[:, 0])


@COMBINE
@RESIDUAL
def test_a_sentence_of_padding_is_finite(combine, residual):
    module = build(combine=combine, residual=residual)
    x = inputs()
    out = module(x, padding_mask=torch.tensor([[False], [True]]).expand(2, 40))
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert torch.isfinite(out).all() and torch.isfinite(gradient).all()
    if combine == "product":  # both global vectors are zero: only bias and residual remain
        residual_row = module.queries_keys_values(x)[0] if residual == "query" else torch.zeros(2, 4, 40, 4)
        torch.testing.assert_close(out[:, 1], module.out_proj.bias + merge_heads(residual_row.double())[:, 1])


@COMBINE
@RESIDUAL
@SHARE
def test_every_parameter_gets_a_gradient(combine, residual, share):
    module = build(combine=combine, residual=residual, share=share, kernel_size=3)
    module(inputs()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 1e-6 for p in module.parameters())


def test_the_parameters_of_each_choice():
    base = {"q_proj.weight", "k_proj.weight", "query_score.weight", "key_score.weight", "out_proj.weight"}
    for options, names in (
        ({}, base),
        ({"share": "none"}, base | {"v_proj.weight"}),
        ({"share": "query-key-value"}, base - {"k_proj.weight"}),
        ({"combine": "sum"}, base),
        ({"combine": "concat"}, base | {"query_key_proj.weight", "key_value_proj.weight"}),
        ({"residual": "global-query"}, base),
        ({"kernel_size": 3}, base | {"convolution.weight"}),
    ):
        assert set(build(bias=False, **options).state_dict()) == names
    projections = {name for name in build().state_dict() if name.endswith("bias")}
    assert projections == {"q_proj.bias", "k_proj.bias", "out_proj.bias"}


def test_only_the_convolution_sees_the_order_of_the_steps():
    x, order = inputs(), torch.randperm(40, generator=torch.Generator().manual_seed(3))
    without, module = build(), build(kernel_size=3)
    torch.testing.assert_close(without(x[order]), without(x)[order])
    assert (module(x[order]) - module(x)[order]).abs().max() > 0.1


def test_the_convolution_comes_before_the_attention():
    module, without = build(kernel_size=3), build()
    without.load_state_dict({name: tensor for name, tensor in module.state_dict().items() if "convolution" not in name})
    x, mask = inputs(), torch.arange(40) >= torch.tensor([[40], [33]])
    expected = without(module.convolution.centred(x, padding_mask=mask), padding_mask=mask)
    torch.testing.assert_close(module(x, padding_mask=mask), expected)
    alone = module(x[:33, 1:])
    torch.testing.assert_close(module(x, padding_mask=mask)[:33, 1:], alone)


def test_dropout_is_only_for_training():
    module = build(dropout=0.5)
    x = inputs()
    assert not module(x).equal(module(x))
    module.eval()
    torch.testing.assert_close(module(x), build()(x))


def test_quantisation_noise_reaches_the_projections():
    module = build(q_noise=0.5, qn_block_size=8)
    x = inputs()
    assert not module(x).equal(module(x))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 4e-2), (torch.float16, 5e-3)], ids=["bf16", "fp16"])
@COMBINE
def test_half_precision_stays_near_fp32(combine, dtype, bound):
    module, half = build(combine=combine, dtype=torch.float32), build(combine=combine, dtype=dtype)
    x = inputs(steps=300, dtype=torch.float32).detach()
    expected = module(x)
    assert (half(x.to(dtype)).float() - expected).abs().max() < bound * expected.abs().max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"combine": "max"}, "combine max: choose product, sum or concat"),
        ({"residual": "key"}, "residual key: choose query or global-query"),
        ({"share": "all"}, "share all: choose none, query-value or query-key-value"),
        ({"heads": 3}, r"num_heads 3: must be 1 or more and divide embed_dim 16"),
        ({"kernel_size": 4}, "kernel_size 4: must be an odd number of words, such as 5; or 0"),
        ({"kernel_size": -3}, "kernel_size -3: must be an odd number of words"),
        ({"heads": 0}, r"num_heads 0: must be 1 or more"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)

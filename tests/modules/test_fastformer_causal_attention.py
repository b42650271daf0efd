import itertools

import pytest
import torch

from fairseq_luna.modules.fastformer_attention import FastformerAttention
from fairseq_luna.modules.fastformer_causal_attention import FastformerCausalAttention
from fairseq_luna.modules.fastformer_projections import COMBINE_CHOICES, RESIDUAL_CHOICES, SHARE_CHOICES
from fairseq_luna.modules.heads import merge_heads
from fairseq_luna.ops.fastformer_attention import naive
from numeric import PADDED, scattered_padding, sequences

CHOICES = [
    dict(zip(("combine", "residual", "share"), chosen, strict=True))
    for chosen in itertools.product(COMBINE_CHOICES, RESIDUAL_CHOICES, SHARE_CHOICES)
]
CHOICES.append({"combine": "product", "residual": "query", "share": "query-value", "kernel_size": 5})
ALL = pytest.mark.parametrize("options", CHOICES, ids=lambda options: "-".join(map(str, options.values())))
COMBINE = pytest.mark.parametrize("combine", COMBINE_CHOICES)


def build(size=16, heads=4, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    return FastformerCausalAttention(embed_dim=size, num_heads=heads, **options).to(dtype)


def inputs(steps=40, batch=2, size=16, dtype=torch.float64):
    return sequences((steps, batch, size), dtype=dtype)[0]


@ALL
@PADDED
def test_equals_the_naive_form(options, padded):
    module = build(**options)
    x, mask = inputs(), scattered_padding(2, 40) if padded else None
    out = module(x, padding_mask=mask)
    convolved = module.convolution.causal(x, padding_mask=mask)[0] if module.convolution else x
    q, k, v = module.queries_keys_values(convolved)
    u, global_query = naive.fastformer_causal_attention(q, k, v, module.maps(), padding_mask=mask)
    added = q if options["residual"] == "query" else global_query
    expected = module.out_proj(merge_heads(u)) + merge_heads(added)
    torch.testing.assert_close(out, expected)
    wanted = [x, *module.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(out.square().sum(), wanted), torch.autograd.grad(expected.square().sum(), wanted)
    )


@ALL
def test_generation_equals_the_full_pass_and_follows_the_beam(options):
    module = build(**options)
    x, mask = inputs().detach(), scattered_padding(2, 40)
    expected = module(x, padding_mask=mask)
    state, order = {}, torch.tensor([0, 1])
    for t in range(40):
        if t in (1, 17):  # beams are swapped, and later one is doubled
            chosen = torch.tensor([1, 0]) if t == 1 else torch.tensor([0, 0, 1])
            module.reorder_incremental_state(state, chosen)
            order = order[chosen]
        out = module(x[t : t + 1, order], padding_mask=mask[order, t : t + 1], incremental_state=state)
        real = ~mask[order, t]
        torch.testing.assert_close(out[:, real], expected[t : t + 1, order][:, real])


@pytest.mark.parametrize("kernel_size", [0, 3], ids=["plain", "convolution"])
def test_generation_may_take_several_steps_at_once(kernel_size):
    module = build(kernel_size=kernel_size)
    x, state = inputs().detach(), {}
    parts = [module(part, incremental_state=state) for part in x.split([7, 1, 32])]
    torch.testing.assert_close(torch.cat(parts), module(x))


@pytest.mark.parametrize("kernel_size", [0, 5], ids=["plain", "convolution"])
def test_the_generation_state_does_not_grow(kernel_size):
    module = build(kernel_size=kernel_size)
    x, state, sizes = inputs().detach(), {}, set()
    for t in range(40):
        module(x[t : t + 1], incremental_state=state)
        sizes.add(sum(tensor.numel() for tensor in module.load_state(state).values()))
    # Per sentence and head, for queries and for keys: a denominator and a mean of size D.
    # For the convolution the last K - 1 inputs of C channels.
    assert sizes == {2 * 4 * 2 * (1 + 4) + (2 * 4 * 16 if kernel_size else 0)}


@ALL
def test_no_step_depends_on_a_later_one(options):
    module = build(**options)
    x = inputs(steps=100)
    (seen,) = torch.autograd.grad(module(x)[60].square().sum(), x)
    assert seen[61:].abs().max() == 0
    assert (seen[:61].abs().amax((1, 2)) > 0).all()


@COMBINE
def test_padding_has_no_effect_at_any_position(combine):
    module = build(combine=combine)
    x, mask = inputs(), scattered_padding(2, 40)
    out = module(x, padding_mask=mask)
    assert torch.isfinite(out).all()
    for row in range(2):
        real = ~mask[row]
        torch.testing.assert_close(out[real, row], module(x[real, row : row + 1])[:, 0])


@pytest.mark.parametrize("kernel_size", [0, 1], ids=["plain", "convolution"])
def test_loads_a_bidirectional_state_dict_and_equals_it_for_one_step(kernel_size):
    torch.manual_seed(7)
    other = FastformerAttention(embed_dim=16, num_heads=4, kernel_size=kernel_size).double()
    module = build(kernel_size=kernel_size)
    module.load_state_dict(other.state_dict())
    x = inputs()
    torch.testing.assert_close(module(x[:1]), other(x[:1]))
    assert (module(x)[-1] - other(x)[-1]).abs().max() > 1e-4


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 4e-2), (torch.float16, 5e-3)], ids=["bf16", "fp16"])
@COMBINE
def test_half_precision_stays_near_fp32(combine, dtype, bound):
    module, half = build(combine=combine, dtype=torch.float32), build(combine=combine, dtype=dtype)
    x = inputs(steps=300, dtype=torch.float32).detach()
    expected = module(x)
    assert (half(x.to(dtype)).float() - expected).abs().max() < bound * expected.abs().max()
    state = {}
    steps = [half(x[t : t + 1].to(dtype), incremental_state=state).float() for t in range(50)]
    assert (torch.cat(steps) - expected[:50]).abs().max() < bound * expected.abs().max()
    kept = {name: tensor.dtype for name, tensor in half.load_state(state).items()}
    assert kept["query_mean"] == kept["key_mean"] == torch.float32


def test_holds_at_100000_steps():
    module = build(size=8, heads=1, dtype=torch.float32).eval()
    x = inputs(steps=100_000, batch=1, size=8, dtype=torch.float32).detach()
    with torch.no_grad():
        out = module(x)
        expected = module.double()(x.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)


@ALL
def test_every_parameter_gets_a_gradient(options):
    module = build(**options)
    module(inputs()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 1e-6 for p in module.parameters())


def test_dropout_is_only_for_training_and_stays_causal():
    module = build(dropout=0.5)
    x = inputs(steps=100)
    assert not module(x).equal(module(x))
    (seen,) = torch.autograd.grad(module(x)[60].square().sum(), x)
    assert seen[61:].abs().max() == 0
    module.eval()
    torch.testing.assert_close(module(x), build()(x))


def test_invalid_options_are_refused():
    with pytest.raises(ValueError, match="combine max: choose product, sum or concat"):
        build(combine="max")

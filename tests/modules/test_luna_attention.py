import pytest
import torch

from fairseq_luna.modules import LunaAttention
from fairseq_luna.modules.multihead import merge_heads, split_heads
from fairseq_luna.ops.softmax_attention import softmax_attention_reference
from numeric import PADDED, assert_same_function, sequences

TIED = pytest.mark.parametrize("tie_kv", [True, False], ids=["tied", "untied"])
HEADS = pytest.mark.parametrize(("heads", "packed_heads"), [(4, 4), (2, 8)], ids=["H4-PH4", "H2-PH8"])


def build(size=16, heads=4, packed_heads=4, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return LunaAttention(embed_dim=size, num_heads=heads, num_packed_heads=packed_heads, **options).to(dtype)


def inputs(steps=5, context=9, slots=3, batch=2, size=16, dtype=torch.float64):
    return sequences((steps, batch, size), (slots, batch, size), (context, batch, size), dtype=dtype)


def naive(module, query, packed, context, context_padding_mask=None, packed_padding_mask=None):
    """The equations with the module's projections."""

    def attention(q, k, v, heads, mask, bias=None):
        q, k, v = (split_heads(x, heads) for x in (q, k, v))
        out, weights = softmax_attention_reference(q, k, v, padding=mask, bias=bias, need_weights=True)
        return merge_heads(out), weights

    maps = (module.pc_proj, module.pc_proj) if module.tie_kv else (module.pk_proj, module.pv_proj)
    pack_key, pack_value = (each(context) for each in maps)
    bias = None
    if module.segment_bias is not None:
        rows = []
        for row in range(context.shape[1]):
            real = len(context) if context_padding_mask is None else int((~context_padding_mask[row]).sum())
            segment = [step * min(len(packed), real) // real for step in range(len(context))]
            rows.append([[float(one == slot) for one in segment] for slot in range(len(packed))])
        bias = torch.tensor(rows, dtype=context.dtype)[:, None] * module.segment_bias[:, None, None]
    packed_context, pack = attention(
        module.pq_proj(packed), pack_key, pack_value, module.num_packed_heads, context_padding_mask, bias
    )
    maps = (module.c_proj, module.c_proj) if module.tie_kv else (module.k_proj, module.v_proj)
    key, value = (each(packed_context) for each in maps)
    out, unpack = attention(module.q_proj(query), key, value, module.num_heads, packed_padding_mask)
    return module.out_proj(out), packed_context, unpack @ pack.mean(1, keepdim=True)


def padding(batch, steps, *real):
    return torch.arange(steps).expand(batch, steps) >= torch.tensor(real)[:, None]


@TIED
@HEADS
@PADDED
@pytest.mark.parametrize("need_weights", [False, True], ids=["output", "weights"])
@pytest.mark.parametrize("segment_bias", [0.0, 4.0], ids=["paper", "segment-bias"])
def test_equals_the_equations(tie_kv, heads, packed_heads, padded, need_weights, segment_bias):
    module = build(heads=heads, packed_heads=packed_heads, tie_kv=tie_kv, segment_bias=segment_bias)
    args = inputs()
    masks = {}
    if padded:
        masks = {"context_padding_mask": padding(2, 9, 9, 4), "packed_padding_mask": padding(2, 3, 3, 2)}
    out, packed, weights = module(*args, need_weights=need_weights, **masks)
    expected_out, expected_packed, expected_weights = naive(module, *args, **masks)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights.transpose(0, 1))
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    found, expected = torch.cat([out, packed]), torch.cat([expected_out, expected_packed])
    assert_same_function(found, expected, [*args, *module.parameters()])


@pytest.mark.parametrize("need_weights", [False, True], ids=["output", "weights"])
def test_the_convolution_comes_before_the_attention(need_weights):
    module, without = build(kernel_size=3), build()
    without.load_state_dict({name: tensor for name, tensor in module.state_dict().items() if "convolution" not in name})
    x, packed, _ = inputs(steps=9)
    mask = padding(2, 9, 9, 4)
    options = {"context_padding_mask": mask, "need_weights": need_weights}
    convolved = module.convolution.centered(x, padding=mask)
    torch.testing.assert_close(module(x, packed, x, **options), without(convolved, packed, convolved, **options))
    out, packed_context, _ = module(x, packed, x, **options)
    alone = x[:4, 1:]
    expected, expected_packed, _ = module(alone, packed[:, 1:], alone)
    torch.testing.assert_close((out[:4, 1:], packed_context[:, 1:]), (expected, expected_packed))


def test_the_convolution_is_for_self_attention():
    with pytest.raises(AssertionError, match="a convolution is for self-attention"):
        build(kernel_size=3)(*inputs())


@TIED
@PADDED
def test_a_long_sequence_equals_the_equations_and_is_only_projected_by_maps_with_hooks(tie_kv, padded, monkeypatch):
    module = build(heads=2, packed_heads=2, tie_kv=tie_kv)
    args = inputs(steps=30, context=40, slots=2)
    masks = {}
    if padded:
        masks = {"context_padding_mask": padding(2, 40, 40, 4), "packed_padding_mask": padding(2, 2, 2, 1)}
    expected, rows, linear = torch.cat(naive(module, *args, **masks)[:2]), [], torch.nn.Linear.forward
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: rows.append(x.shape[0]) or linear(self, x))
    out, packed, _ = module(*args, **masks)
    assert max(rows) == 2
    assert_same_function(torch.cat([out, packed]), expected, [*args, *module.parameters()])
    for name in ("q_proj", "pc_proj" if tie_kv else "pv_proj"):
        module.get_submodule(name).register_forward_hook(lambda *_: None)
    torch.testing.assert_close(torch.cat(module(*args, **masks)[:2]), expected)
    assert {30, 40} <= set(rows)

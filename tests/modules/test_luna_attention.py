import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.modules import LunaAttention
from fairseq_luna.modules.heads import merge_heads, split_heads
from fairseq_luna.ops.softmax_attention.naive import softmax_attention
from fairseq_luna.usage_error import UsageError
from numeric import PADDED, sequences

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
        out, weights = softmax_attention(q, k, v, padding_mask=mask, bias=bias, need_weights=True)
        return merge_heads(out), weights

    if module.tie_kv:
        pack_key = pack_value = module.pc_proj(context)
    else:
        pack_key, pack_value = module.pk_proj(context), module.pv_proj(context)
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
    key, value = (
        [module.c_proj(packed_context)] * 2
        if module.tie_kv
        else [
            module.k_proj(packed_context),
            module.v_proj(packed_context),
        ]
    )
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
    torch.testing.assert_close(out, expected_out)
    torch.testing.assert_close(packed, expected_packed)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights.transpose(0, 1))
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    wanted = [*args, *module.parameters()]
    ours = torch.autograd.grad(out.square().sum() + packed.square().sum(), wanted)
    theirs = torch.autograd.grad(expected_out.square().sum() + expected_packed.square().sum(), wanted)
    torch.testing.assert_close(ours, theirs)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.integers(1, 20),
    context=st.integers(1, 30),
    slots=st.integers(1, 9),
    extra=st.integers(1, 10),
    tie_kv=st.booleans(),
)
def test_padding_of_the_context_and_of_the_slots_has_no_effect(steps, context, slots, extra, tie_kv):
    module = build(tie_kv=tie_kv)
    query, packed, memory = (x.detach() for x in inputs(steps, context, slots))
    expected, expected_packed, _ = module(query, packed, memory)
    longer = torch.cat([memory, memory.new_full((extra, 2, 16), 7.0)])
    more = torch.cat([packed, packed.new_full((extra, 2, 16), -5.0)])
    out, packed_context, _ = module(
        query,
        more,
        longer,
        context_padding_mask=padding(2, context + extra, context, context),
        packed_padding_mask=padding(2, slots + extra, slots, slots),
    )
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(packed_context[:slots], expected_packed)


@TIED
@pytest.mark.parametrize("need_weights", [False, True], ids=["output", "weights"])
def test_generation_packs_once_and_follows_the_beam(tie_kv, need_weights):
    module = build(tie_kv=tie_kv)
    query, packed, context = (x.detach() for x in inputs())
    mask = padding(2, 9, 9, 4)
    expected, _, expected_weights = module(query, packed, context, context_padding_mask=mask, need_weights=need_weights)
    state = {}
    first, packed_context, _ = module(
        query[:1], packed, context, context_padding_mask=mask, incremental_state=state, need_weights=need_weights
    )
    assert packed_context is not None
    torch.testing.assert_close(first, expected[:1])
    order = torch.tensor([1, 0, 1])
    module.reorder_incremental_state(state, order)
    for t in range(1, 5):
        out, packed_context, weights = module(
            query[t : t + 1, order], None, None, incremental_state=state, need_weights=need_weights
        )
        assert packed_context is None
        torch.testing.assert_close(out, expected[t : t + 1, order])
        if need_weights:
            torch.testing.assert_close(weights, expected_weights[:, order, t : t + 1])


@TIED
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("need_weights", [False, True], ids=["output", "weights"])
def test_beams_of_a_sentence_read_one_row(tie_kv, need_weights, steps):
    module, beams = build(tie_kv=tie_kv, packed_heads=2), 3
    query, packed, context = (x.detach() for x in inputs(steps=2 * steps, batch=2))
    masks = {"context_padding_mask": padding(2, 9, 9, 4), "packed_padding_mask": padding(2, 3, 3, 2)}
    query = torch.cat([query, query + 1, query - 1], dim=1)[:, [0, 2, 4, 1, 3, 5]]
    rows = torch.arange(2).repeat_interleave(beams)
    expected, _, expected_weights = module(
        query, packed[:, rows], context[:, rows], need_weights=need_weights, **{k: m[rows] for k, m in masks.items()}
    )
    state = {}
    for begin, sources in ((0, (packed, context)), (steps, (None, None))):
        out, _, weights = module(
            query[begin : begin + steps], *sources, incremental_state=state, need_weights=need_weights, **masks
        )
        torch.testing.assert_close(out, expected[begin : begin + steps])
        if need_weights:
            torch.testing.assert_close(weights, expected_weights[:, :, begin : begin + steps])
    assert {len(tensor) for name, tensor in module.load_constants(state).items() if name != "beams"} == {2}


def test_constants_are_copied_only_when_sentences_leave_the_batch():
    module, beams, state = build(tie_kv=False), 3, {}
    query, packed, context = (x.detach() for x in inputs(batch=6))
    module(query[:1], packed[:, :2], context[:, :2], incremental_state=state)
    before = module.load_constants(state)
    module.reorder_incremental_state(state, torch.tensor([2, 0, 0, 3, 5, 5]))
    assert module.load_constants(state) is before
    module.reorder_incremental_state(state, torch.tensor([4, 3, 3]))
    after = module.load_constants(state)
    assert after.pop("beams") == before.pop("beams") == beams
    assert all(after[name].equal(tensor[1:]) for name, tensor in before.items())


@TIED
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(tie_kv, dtype, bound):
    module, half = build(tie_kv=tie_kv, dtype=torch.float32), build(tie_kv=tie_kv, dtype=dtype)
    mask = padding(2, 40, 40, 11)
    args = inputs(steps=30, context=40, dtype=torch.float32)
    expected, expected_packed, _ = module(*args, context_padding_mask=mask)
    out, packed, _ = half(*(x.to(dtype) for x in args), context_padding_mask=mask)
    assert (out.float() - expected).abs().max() < bound * expected.abs().max()
    assert (packed.float() - expected_packed).abs().max() < bound * expected_packed.abs().max()


@pytest.mark.parametrize("need_weights", [False, True], ids=["output", "weights"])
def test_the_convolution_comes_before_the_attention(need_weights):
    module, without = build(kernel_size=3), build()
    without.load_state_dict({name: tensor for name, tensor in module.state_dict().items() if "convolution" not in name})
    x, packed, _ = inputs(steps=9)
    mask = padding(2, 9, 9, 4)
    options = {"context_padding_mask": mask, "need_weights": need_weights}
    convolved = module.convolution.centred(x, padding_mask=mask)
    torch.testing.assert_close(module(x, packed, x, **options), without(convolved, packed, convolved, **options))
    out, packed_context, _ = module(x, packed, x, **options)
    alone = x[:4, 1:]
    expected, expected_packed, _ = module(alone, packed[:, 1:], alone)
    torch.testing.assert_close((out[:4, 1:], packed_context[:, 1:]), (expected, expected_packed))


def test_the_convolution_is_for_self_attention():
    with pytest.raises(AssertionError, match="a convolution is for self-attention"):
        build(kernel_size=3)(*inputs())


@pytest.mark.parametrize("kernel_size", [0, 3], ids=["plain", "convolution"])
def test_every_parameter_gets_a_gradient(kernel_size):
    module = build(tie_kv=False, kernel_size=kernel_size)
    x, packed, _ = inputs(steps=9)
    out, packed, _ = module(x, packed, x)
    (out.square().sum() + packed.square().sum()).backward()
    assert all(p.grad is not None for p in module.parameters())


def test_dropout_is_only_for_training():
    module = build(dropout=0.5)
    args = inputs()
    assert (module(*args)[0] - module(*args)[0]).abs().max() > 1e-3
    module.eval()
    torch.testing.assert_close(module(*args)[0], module(*args)[0])
    module.dropout_module.apply_during_inference = True
    assert (module(*args)[0] - module(*args)[0]).abs().max() > 1e-3


def test_linear_in_the_length_of_both_sides():
    from largest_tensor import LargestTensor

    module = build(dtype=torch.float32)
    args = inputs(steps=3000, context=3000, batch=1, dtype=torch.float32)
    with LargestTensor() as largest:
        module(*args)[0].sum().backward()
    assert largest.elements <= 3000 * 16


@TIED
@PADDED
def test_a_long_sequence_equals_the_equations_without_being_projected(tie_kv, padded, monkeypatch):
    module = build(heads=2, packed_heads=2, tie_kv=tie_kv)
    args = inputs(steps=30, context=40, slots=2)
    masks = {}
    if padded:
        masks = {"context_padding_mask": padding(2, 40, 40, 4), "packed_padding_mask": padding(2, 2, 2, 1)}
    expected_out, expected_packed, _ = naive(module, *args, **masks)
    theirs = gradients(expected_out, expected_packed, args, module)
    rows = []
    linear = torch.nn.Linear.forward
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: rows.append(x.shape[0]) or linear(self, x))
    out, packed, _ = module(*args, **masks)
    assert max(rows) == 2
    torch.testing.assert_close(out, expected_out)
    torch.testing.assert_close(packed, expected_packed)
    torch.testing.assert_close(gradients(out, packed, args, module), theirs)


def gradients(out, packed, args, module):
    return torch.autograd.grad(out.square().sum() + packed.square().sum(), [*args, *module.parameters()])


def test_a_projection_with_a_hook_is_called_at_any_length():
    module = build(heads=2, packed_heads=2)
    args = inputs(steps=30, context=40, slots=2)
    calls = []
    for name in ("q_proj", "pc_proj"):
        module.get_submodule(name).register_forward_hook(lambda *_, name=name: calls.append(name))
    module(*args)
    assert sorted(calls) == ["pc_proj", "q_proj"]


@pytest.mark.parametrize(
    ("heads", "packed_heads", "said"), [(3, 4, "num_heads 3"), (4, 5, "num_packed_heads 5")], ids=["heads", "packed"]
)
def test_heads_that_do_not_divide_the_channels_are_refused(heads, packed_heads, said):
    with pytest.raises(UsageError, match=f"^{said}: must be 1 or more and divide embed_dim 16$"):
        LunaAttention(embed_dim=16, num_heads=heads, num_packed_heads=packed_heads)

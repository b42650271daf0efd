"""The four kernel attentions, each in the encoder's, the decoder's and the source's place."""

import pytest
import torch

from fairseq_luna.modules import KernelAttention, KernelCausalAttention, KernelSourceAttention
from fairseq_luna.modules.feature_maps import EluFeatures, FourierFeatures, PositiveFeatures, SoftmaxFeatures
from fairseq_luna.ops.kernel_attention import naive
from largest_tensor import LargestTensor
from numeric import PADDED, mixed_padding, scattered_padding, sequences

SIZE, HEADS, SOURCE_SIZE = 16, 4, 12
FEATURE_MAPS = {
    "linear": {"feature_map": EluFeatures},
    "performer": {"feature_map": PositiveFeatures},
    "rfa": {"feature_map": FourierFeatures, "num_features": 24},
    "efficient": {"feature_map": SoftmaxFeatures},
}
FEATURES = {"linear": 4, "performer": 16, "rfa": 48, "efficient": 4}
NAMES = pytest.mark.parametrize("name", FEATURE_MAPS)
KINDS = {"encoder": KernelAttention, "decoder": KernelCausalAttention, "source": KernelSourceAttention}
PLACES = pytest.mark.parametrize("place", KINDS)
HALF = pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.bfloat16, 6e-2), (torch.float16, 8e-3)], ids=["bf16", "fp16"]
)


def build(name, place="decoder", dtype=torch.float64, seed=0, **options):
    """A module in evaluation, where RFA's directions are fixed."""
    torch.manual_seed(seed)
    if place == "source":
        options = {"source_dim": SOURCE_SIZE, **options}
    module = KINDS[place](embed_dim=SIZE, num_heads=HEADS, **FEATURE_MAPS[name], **options)
    return module.to(dtype).eval()


def inputs(steps=40, batch=2, source=30, dtype=torch.float64):
    """x and a source."""
    return sequences((steps, batch, SIZE), (source, batch, SOURCE_SIZE), dtype=dtype)


def call(module, x, source, mask=None, **options):
    """The output in any place; the mask is that of x, or of the source."""
    if isinstance(module, KernelSourceAttention):
        return module(x, source, source_padding_mask=mask, **options)[0]
    return module(x, padding_mask=mask, **options)


def kept(module, state):
    """What a module keeps between the steps of generation."""
    return module.load_state(state) or module.load_constants(state)


def naive_form(module, x, source, mask=None):
    features = module.feature_map()
    read = source if isinstance(module, KernelSourceAttention) else x
    q = features.of_queries(module.heads_of(module.q_proj, x))
    k = features.of_keys(module.heads_of(module.k_proj, read))
    v = module.heads_of(module.v_proj, read)
    causal = isinstance(module, KernelCausalAttention)
    attention = naive.kernel_causal_attention if causal else naive.kernel_attention
    return module.output(attention(q, k, v, normaliser=module.normaliser, padding_mask=mask))


def mask_of(place, batch=2):
    return scattered_padding(batch, 30 if place == "source" else 40)


@NAMES
@PLACES
@PADDED
def test_equals_the_naive_form(name, place, padded):
    module = build(name, place)
    x, source = inputs()
    mask = mask_of(place) if padded else None
    found, expected = call(module, x, source, mask), naive_form(module, x, source, mask)
    torch.testing.assert_close(found, expected)
    wanted = [x, *([source] if place == "source" else []), *module.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), wanted), torch.autograd.grad(expected.square().sum(), wanted)
    )


@NAMES
def test_generation_equals_the_full_pass_and_follows_the_beam(name):
    module = build(name)
    x, mask = inputs()[0].detach(), scattered_padding(2, 40)
    expected = module(x, padding_mask=mask)
    state, order = {}, torch.tensor([0, 1])
    for t in range(40):
        if t in (1, 17):  # beams are swapped, and later one is doubled
            chosen = torch.tensor([1, 0]) if t == 1 else torch.tensor([0, 0, 1])
            module.reorder_incremental_state(state, chosen)
            order = order[chosen]
        out = module(x[t : t + 1, order], padding_mask=mask[order, t : t + 1], incremental_state=state)
        torch.testing.assert_close(out, expected[t : t + 1, order])


@NAMES
def test_generation_may_take_several_steps_at_once(name):
    module = build(name)
    x, state = inputs()[0].detach(), {}
    parts = [module(part, incremental_state=state) for part in x.split([7, 1, 32])]
    torch.testing.assert_close(torch.cat(parts), module(x))


@NAMES
@pytest.mark.parametrize("place", ["decoder", "source"])
def test_the_generation_state_does_not_grow(name, place):
    module = build(name, place)
    x, source = inputs()
    state, sizes = {}, set()
    for t in range(20):
        call(module, x[t : t + 1], source, incremental_state=state)
        sizes.add(sum(tensor.numel() for tensor in kept(module, state).values()))
    assert sizes == {2 * HEADS * FEATURES[name] * (SIZE // HEADS + 1) + 2}


@NAMES
@pytest.mark.parametrize("need_weights", [False, True], ids=["output", "weights"])
def test_the_source_is_read_once_and_follows_the_beam(name, need_weights):
    module = build(name, "source")
    x, source = (tensor.detach() for tensor in inputs(steps=6))
    mask = scattered_padding(2, 30)
    expected, expected_weights = module(x, source, source_padding_mask=mask, need_weights=True)
    assert module(x, source)[1] is None
    state, order = {}, torch.tensor([0, 1])
    for t in range(6):
        if t == 2:
            order = torch.tensor([1, 0, 1])
            module.reorder_incremental_state(state, order)
        out, weights = module(
            x[t : t + 1, order],
            source if t == 0 else None,
            source_padding_mask=mask if t == 0 else None,
            incremental_state=state,
            need_weights=need_weights,
        )
        torch.testing.assert_close(out, expected[t : t + 1, order])
        if need_weights:
            torch.testing.assert_close(weights, expected_weights[:, order, t : t + 1])
        else:
            assert weights is None


@NAMES
@pytest.mark.parametrize("need_weights", [False, True], ids=["output", "weights"])
def test_all_beams_read_what_is_kept_of_their_sentence(name, need_weights):
    module = build(name, "source")
    x, source = (tensor.detach() for tensor in inputs(steps=6, batch=6))
    sentences, mask = source[:, :2], scattered_padding(2, 30)
    rows, state = torch.tensor([0, 0, 0, 1, 1, 1]), {}
    expected, expected_weights = module(x, sentences[:, rows], source_padding_mask=mask[rows], need_weights=True)
    order = torch.arange(6)
    for t in range(6):
        if t in (2, 4):  # beams of a sentence change places; the first sentence is complete
            chosen = torch.tensor([2, 0, 0, 5, 4, 3]) if t == 2 else torch.tensor([5, 3, 4])
            module.reorder_incremental_state(state, chosen)
            order = order[chosen]
        out, weights = module(
            x[t : t + 1, order],
            sentences if t == 0 else None,
            source_padding_mask=mask if t == 0 else None,
            incremental_state=state,
            need_weights=need_weights,
        )
        torch.testing.assert_close(out, expected[t : t + 1, order])
        if need_weights:
            torch.testing.assert_close(weights, expected_weights[:, order, t : t + 1])
    assert len(module.load_constants(state)["mean"]) == 1


@NAMES
@PADDED
def test_the_weights_give_the_output(name, padded):
    module = build(name, "source")
    x, source = inputs()
    mask = scattered_padding(2, 30) if padded else None
    out, weights = module(x, source, source_padding_mask=mask, need_weights=True)
    assert weights.shape == (HEADS, 2, 40, 30)
    v = module.heads_of(module.v_proj, source)
    torch.testing.assert_close(module.output(weights.transpose(0, 1) @ v), out)
    sums = weights.sum(-1)
    if name == "rfa":
        assert (sums < 1 + 1e-9).all() and (weights < 0).any()
    else:
        torch.testing.assert_close(sums, torch.ones_like(sums))
    if padded:
        assert weights.masked_select(mask[:, None]).abs().max() == 0


@NAMES
def test_no_step_depends_on_a_later_one(name):
    module = build(name)
    x, _ = inputs(steps=100)
    (seen,) = torch.autograd.grad(module(x)[60].square().sum(), x)
    assert seen[61:].abs().max() == 0
    assert (seen[:61].abs().amax((1, 2)) > 0).all()


@NAMES
@PLACES
def test_padding_has_no_effect_at_any_position(name, place):
    module = build(name, place)
    x, source = inputs(steps=30, batch=3)
    mask = mixed_padding(30)
    out = call(module, x, source, mask)
    for row in range(3):
        real, one = ~mask[row], slice(row, row + 1)
        if place == "source":
            torch.testing.assert_close(out[:, one], call(module, x[:, one], source[real, one]))
        else:
            torch.testing.assert_close(out[real, one], call(module, x[real, one], None))


@NAMES
@PLACES
def test_a_sentence_of_padding_gives_the_bias(name, place):
    module = build(name, place)
    x, source = inputs(steps=30)
    out = call(module, x, source, torch.tensor([[False], [True]]).expand(2, 30))
    torch.testing.assert_close(out[:, 1], module.out_proj.bias.expand(30, SIZE))
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert torch.isfinite(gradient).all()


@NAMES
@PLACES
@HALF
def test_half_precision_stays_near_fp32(name, place, dtype, bound):
    module, half = build(name, place, dtype=torch.float32), build(name, place, dtype=dtype)
    x, source = inputs(steps=300, dtype=torch.float32)
    expected = call(module, x, source)
    found = call(half, x.to(dtype), source.to(dtype))
    assert found.dtype == dtype
    assert (found.float() - expected).abs().max() < bound * expected.abs().max()
    if place != "encoder":
        state = {}
        steps = [call(half, x[t : t + 1].to(dtype), source.to(dtype), incremental_state=state) for t in range(50)]
        assert (torch.cat(steps).float() - expected[:50]).abs().max() < bound * expected.abs().max()
        assert {tensor.dtype for tensor in kept(half, state).values()} == {torch.float32}


@NAMES
@PLACES
def test_autocast_keeps_features_and_sums_in_fp32(name, place):
    module = build(name, place, dtype=torch.float32)
    x, source = inputs(dtype=torch.float32)
    expected = call(module, x, source)
    with torch.autocast("cpu", torch.bfloat16):
        found = call(module, x, source)
        dtypes = {
            x.dtype
            for x in module.feature_map().of_keys(module.heads_of(module.k_proj, source if place == "source" else x))[
                None
            ]
        }
    assert found.dtype == torch.bfloat16 and dtypes == {torch.float32}
    assert (found.float() - expected).abs().max() < 6e-2 * expected.abs().max()


@NAMES
def test_holds_at_100000_steps(name):
    module = build(name, dtype=torch.float32)
    x, _ = inputs(steps=100_000, batch=1, dtype=torch.float32)
    with torch.no_grad():
        out = module(x)
        expected = module.double()(x.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)


@NAMES
@PLACES
def test_every_parameter_gets_a_gradient(name, place):
    module = build(name, place).train()
    call(module, *inputs()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 1e-6 for p in module.parameters())


@NAMES
@PLACES
def test_dropout_is_only_for_training(name, place):
    module = build(name, place, dropout=0.5)
    args = inputs()
    torch.testing.assert_close(call(module, *args), call(build(name, place), *args))
    module.train()
    assert not call(module, *args).equal(call(module, *args))
    if place == "decoder":
        (seen,) = torch.autograd.grad(module(args[0])[20].square().sum(), args[0])
        assert seen[21:].abs().max() == 0


def test_only_rfa_differs_between_updates():
    for name in FEATURE_MAPS:
        module, args = build(name).train(), inputs()
        before = call(module, *args)
        assert call(module, *args).equal(before)
        if hasattr(module.feature_map, "set_num_updates"):
            module.feature_map.set_num_updates(7)
        assert call(module, *args).equal(before) == (name != "rfa")


@PLACES
def test_parameter_names(place):
    projections = {f"{which}_proj.{kind}" for which in "qkv" for kind in ("weight", "bias")}
    projections |= {"out_proj.weight", "out_proj.bias"}
    for name, own in {
        "linear": set(),
        "efficient": set(),
        "performer": {"feature_map.directions", "feature_map.seed"},
        "rfa": {"feature_map.matrices", "feature_map.sigma", "feature_map.seed"},
    }.items():
        names = projections | own
        assert set(build(name, place).state_dict()) == (names - {"k_proj.bias"} if name == "efficient" else names)


def test_quantisation_noise_reaches_the_projections():
    module, (x, _) = build("linear", q_noise=0.5, qn_block_size=4).train(), inputs()
    assert not module(x).equal(module(x))


@pytest.mark.parametrize("heads", [3, 0])
def test_heads_that_do_not_divide_the_channels_are_refused(heads):
    message = rf"num_heads {heads}: must be 1 or more and divide embed_dim 16"
    with pytest.raises(ValueError, match=message):
        KernelAttention(feature_map=EluFeatures, embed_dim=16, num_heads=heads)


@NAMES
@PLACES
def test_linear_in_the_length(name, place):
    module = build(name, place, dtype=torch.float32)
    args = inputs(steps=4096, source=4096, batch=1, dtype=torch.float32)
    with LargestTensor() as largest:
        call(module, *args).sum().backward()
    assert largest.elements <= 4096 * HEADS * max(FEATURES[name], 32)


@NAMES
@PLACES
def test_data_decides_no_branch(name, place):
    """Meta tensors have no data: reading a number from one is an error. On a GPU it would wait for the device."""
    module = build(name, place, dropout=0.1).to("meta").train()
    x, source = (tensor.detach().to("meta") for tensor in inputs())
    mask = mask_of(place).to("meta")
    call(module, x, source, mask).sum().backward()
    assert {p.grad.device.type for p in module.parameters()} == {"meta"}
    if place != "encoder":
        state = {}
        for _ in range(2):
            call(module.eval(), x[:1], source, mask[:, :1] if place == "decoder" else mask, incremental_state=state)
        assert {tensor.device.type for tensor in kept(module, state).values()} == {"meta"}

"""The maps are the modules' weights: they reproduce the outputs, and have no weight for padding and later words."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fairseq_luna.usage_error import UsageError
from plots.attention_map import AttentionMap, Axis, Pair
from plots.attention_maps import attention_maps
from plots.convolved import convolved
from support import PAD, as_prefix, build_model, sentences

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # fp32 sums in another order
VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied-elu-prenorm": {
        "untie_luna_kv": True,
        "luna_activation": "elu",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
    },
    "convolution": {"luna_kernel_size": 3},
    "segment-bias": {"luna_segment_bias": 4.0},
    "pack-heads-2": {"encoder_projected_attention_heads": 2, "decoder_projected_attention_heads": 2},
}
variants = pytest.mark.parametrize("variant", VARIANTS)
layers = pytest.mark.parametrize("layer", [0, 1], ids=["layer0", "layer1"])


def words(name: str, tokens: Tensor) -> list[str]:
    return [f"{name}{step}" for step in range(tokens.shape[1])]


def pair_of(source: Tensor, target: Tensor) -> Pair:
    prefix = as_prefix(target)
    return Pair(source, prefix, words("source", source), words("read", prefix), words("predicted", target))


@pytest.fixture
def pair() -> Pair:
    return pair_of(sentences(9), sentences(7, seed=2))


class Call:
    """The last arguments and result of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.inputs, self.given, self.output = module, (), {}, None
        module.register_forward_hook(self.keep, with_kwargs=True)

    def keep(self, module: nn.Module, inputs: tuple, given: dict, output: Any) -> None:
        self.inputs, self.given, self.output = inputs, given, output


def maps_of(model: Any, pair: Pair, side: str, layer: int) -> tuple[dict[str, AttentionMap], Call]:
    """The maps of one attention by their kinds, and the recorded call."""
    half = model.encoder if side == "encoder" else model.decoder
    module = getattr(half.layers[layer], "encoder_attn" if side == "cross" else "self_attn")
    call = Call(getattr(module, "attention", module))
    found = attention_maps(model.eval(), pair, [side], [layer])
    assert all((each.side, each.layer) == (side, layer) for each in found)
    for each in found:
        assert each.weights.shape[1:] == (len(each.rows.labels), len(each.columns.labels))
    return {each.kind: each for each in found}, call


def cut(x: Tensor, heads: int) -> Tensor:
    """``(T, 1, C)`` as ``(H, T, D)``."""
    return torch.stack(x[:, 0].chunk(heads, dim=-1))


def joined(x: Tensor) -> Tensor:
    """``(H, T, D)`` as ``(T, 1, C)``."""
    return torch.cat(list(x), dim=-1)[:, None]


def assert_shares(weights: Tensor) -> None:
    assert (weights >= 0).all()
    assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@variants
@layers
@pytest.mark.parametrize("side", ["encoder", "cross"])
def test_luna_maps_reproduce_the_packed_sequence_and_the_output(
    variant: str, layer: int, side: str, pair: Pair
) -> None:
    model = build_model("luna", **VARIANTS[variant])
    maps, call = maps_of(model, pair, side, layer)
    attention, (_, _, context), (output, packed, _) = call.module, call.inputs, call.output
    context = convolved(attention, context, None, causal=False)
    pack, unpack = maps["pack"].weights, maps["unpack"].weights
    assert pack.shape == (attention.num_packed_heads, 6, 9)
    assert unpack.shape == (4, 9 if side == "encoder" else 7, 6)
    assert_shares(pack)
    assert_shares(unpack)
    write, read = (attention.pc_proj, attention.c_proj) if attention.tie_kv else (attention.pv_proj, attention.v_proj)
    assert_close(joined(pack @ cut(write(context), attention.num_packed_heads)), packed, **CLOSE)
    assert_close(attention.out_proj(joined(unpack @ cut(read(packed), 4))), output, **CLOSE)
    _, _, through = attention(*call.inputs, **{**call.given, "need_weights": True})
    assert_close(maps["through"].weights, through[:, 0], **CLOSE)
    assert maps["pack"].columns.labels == pair.source_words
    assert maps["unpack"].rows.labels == (pair.source_words if side == "encoder" else pair.predicted_words)
    assert maps["pack"].rows.labels == maps["unpack"].columns.labels == ["0", "1", "2", "3", "4", "5"]


@variants
@layers
def test_causal_maps_reproduce_the_scores_and_the_output(variant: str, layer: int, pair: Pair) -> None:
    model = build_model("luna", **VARIANTS[variant])
    maps, call = maps_of(model, pair, "decoder", layer)
    attention, (query, packed), (output, _) = call.module, call.inputs, call.output
    query = convolved(attention, query, None, causal=True)
    pack, unpack, through = (maps[kind].weights for kind in ("pack", "unpack", "through"))
    assert (pack.shape, unpack.shape, through.shape) == ((4, 6, 7), (4, 7, 6), (4, 7, 7))
    size = query.shape[-1] // 4
    score = cut(attention.pq_proj(packed), 4) @ cut(attention.pc_proj(query), 4).transpose(1, 2) / math.sqrt(size)
    positive = torch.where(score > 0, score + 1, score.exp()) if "elu" in variant else torch.log2(1 + 2**score)
    assert_close(pack, positive, **CLOSE)
    key, value = (attention.c_proj,) * 2 if attention.tie_kv else (attention.k_proj, attention.v_proj)
    k, v, q = (cut(projection(query), 4) for projection in (key, value, attention.q_proj))
    for t in range(7):
        packed_keys = pack[:, :, : t + 1] @ k[:, : t + 1] / (t + 1)
        read = (packed_keys @ q[:, t, :, None])[..., 0] / math.sqrt(size)
        assert_close(unpack[:, t], read.softmax(-1), **CLOSE)
    assert_close(attention.out_proj(joined(through @ v)), output, **CLOSE)
    assert not through.triu(1).any()
    assert maps["unpack"].rows.labels == maps["pack"].columns.labels == pair.prefix_words


def test_with_cross_self_attention_the_source_comes_first(pair: Pair) -> None:
    model = build_model("luna", cross_self_attention=True)
    maps, call = maps_of(model, pair, "decoder", 1)
    attention, (query, _), (output, _) = call.module, call.inputs, call.output
    through = maps["through"].weights
    assert maps["through"].columns.labels == maps["pack"].columns.labels == pair.source_words + pair.prefix_words
    values = cut(attention.c_proj(torch.cat([call.given["memory"], query])), 4)
    assert_close(attention.out_proj(joined(through @ values)), output, **CLOSE)
    assert not through[:, :, 9:].triu(1).any()


def is_real(axis: Axis, pair: Pair) -> Tensor:
    """Which rows or columns are not padding."""
    source, target = pair.source[0] != PAD, pair.prefix[0] != PAD
    if "source" in axis.name and "target" in axis.name:
        return torch.cat([source, target])
    if axis.name in ("slot", ""):
        return torch.ones(len(axis.labels), dtype=torch.bool)
    return source if "source" in axis.name else target


@pytest.mark.parametrize(
    ("family", "flags", "count"),
    [("luna", {}, 9), ("luna", {"cross_self_attention": True}, 9), ("fastformer", {}, 5)],
    ids=["luna", "luna-cross-self", "fastformer"],
)
def test_padding_has_no_weight_and_changes_no_weight(
    family: str, flags: dict[str, bool], count: int, pair: Pair
) -> None:
    model = build_model(family, **flags).eval()
    padded = pair_of(
        torch.cat([pair.source, torch.full((1, 3), PAD)], 1),
        torch.cat([sentences(7, seed=2), torch.full((1, 2), PAD)], 1),
    )
    assert padded.prefix[:, :7].equal(pair.prefix)
    alone, beside = attention_maps(model, pair), attention_maps(model, padded)
    assert len(alone) == count
    for expected, found in zip(alone, beside, strict=True):
        rows, columns = is_real(found.rows, padded), is_real(found.columns, padded)
        assert_close(found.weights[:, rows][..., columns], expected.weights, **CLOSE)
        assert columns.all() == (found.columns.name == "slot")
        assert not found.weights[:, rows][..., ~columns].any()


def test_a_short_sentence_has_fewer_slots() -> None:
    found = attention_maps(build_model("luna").eval(), pair_of(sentences(4), sentences(3)), ["encoder"])
    assert [each.weights.shape for each in found] == [(4, 4, 4)] * 3


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize(
    "flags",
    [
        {"family": "fastformer"},
        {"family": "fastformer", "fastformer_combine": "concat", "fastformer_residual": "global-query"},
        {"family": "fastformer", "fastformer_kernel_size": 3},
        {
            "family": "mixed",
            "encoder_self_attention": "fastformer",
            "decoder_self_attention": "fastformer",
            "attention_kernel_size": 3,
        },
    ],
    ids=["product", "concat", "convolution", "by-name"],
)
def test_fastformer_maps_reproduce_the_output(side: str, flags: dict[str, str], pair: Pair) -> None:
    maps, call = maps_of(build_model(**flags), pair, side, 1)
    query, key = maps["query"].weights, maps["key"].weights
    assert query.shape == key.shape == ((4, 1, 9) if side == "encoder" else (4, 7, 7))
    assert_shares(query)
    assert_shares(key)
    if side == "decoder":
        assert not query.triu(1).any()
        assert not key.triu(1).any()
    attention = call.module
    learned = attention.maps()
    x = convolved(attention, call.inputs[0], None, causal=side == "decoder")
    q, k, v = attention.queries_keys_values(x)
    global_query = query @ q
    u = learned.combine_value(key @ learned.combine_key(global_query, k), v)
    assert_close(attention.output(u, q, global_query), call.output, **CLOSE)


@pytest.mark.parametrize("family", ["fastformer", "block", "mixed", "transformer"])
def test_fairseqs_source_attention_maps_reproduce_the_output(family: str, pair: Pair) -> None:
    maps, call = maps_of(build_model(family), pair, "cross", 0)
    weights = maps["weights"].weights
    assert weights.shape == (4, 7, 9)
    assert_shares(weights)
    source = call.given["value"] if family == "transformer" else call.inputs[1]
    values = cut(call.module.v_proj(source), 4)
    assert_close(call.module.out_proj(joined(weights @ values)), call.output[0], **CLOSE)


@pytest.mark.parametrize("family", ["luna", "fastformer", "block"])
def test_the_model_is_unchanged(family: str, pair: Pair) -> None:
    model = build_model(family).eval()
    before = model(pair.source, torch.tensor([9]), pair.prefix)[0]
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    assert attention_maps(model, pair)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == attributes
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model(pair.source, torch.tensor([9]), pair.prefix)[0].equal(before)


@pytest.mark.parametrize(
    ("family", "flags", "side", "layer", "complaint"),
    [
        ("luna", {}, "encoder", 2, "--layers 2: the encoder has 2, counted from 0"),
        ("luna", {}, "cross", -1, "--layers -1: the decoder has 2, counted from 0"),
        (
            *("luna", {"cross_self_attention": True, "no_cross_attention": True}, "cross", 0),
            "--attention cross: this model has none; leave it out",
        ),
        ("block", {}, "encoder", 0, "--attention encoder: BlockAttention cannot be drawn, only"),
        ("transformer", {}, "decoder", 0, "--attention decoder: MultiheadAttention cannot be drawn, only"),
    ],
)
def test_an_attention_that_cannot_be_drawn_is_refused(
    family: str, flags: dict[str, Any], side: str, layer: int, complaint: str, pair: Pair
) -> None:
    with pytest.raises(UsageError, match=complaint):
        attention_maps(build_model(family, **flags).eval(), pair, [side], [layer])

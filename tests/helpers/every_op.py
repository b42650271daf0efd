"""The table of the functions of ``fairseq_luna.ops`` that the tests of all of them read."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention_op import (
    BLOCK,
    Block,
    Delta,
    Fastformer,
    Folded,
    LunaCausal,
    Op,
    Pattern,
    Prefix,
    Recurrence,
    SoftWindow,
    Synthesizer,
    TransformerXl,
    tensors,
)
from fairseq_luna.ops import feature_maps, kernel_attention, luna_causal_attention, prefix_attention
from fairseq_luna.ops.block_attention import two_level_attention
from fairseq_luna.ops.block_partition import block_means, cut_by_number, gather_block_of_each_step
from fairseq_luna.ops.pattern_attention import RandomBlocks, Strided, TopK, Window

QKV, QUERY_KV = "BHTD BHTD BHTD", "BHQD BHTD BHTD"
LONG_SUMS = {"long": True, "sums": True}
PATTERNS = {
    "window": Window(5),
    "wide-window": Window(200),
    "dilated-window": Window(20, dilation=3),
    "topk": TopK(4),
    "strided": Strided(8, 2),
}
PATTERNS_FOR_ENCODERS = {
    "window-and-first": Window(5, first=True),
    "dilated-window-and-first": Window(9, dilation=3, first=True),
    "random-blocks": lambda heads: RandomBlocks(8, 3, seeds=heads + 5),
}


def times(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda x: factor * x


def both(called: str, op: Op, **causal: Any) -> dict[str, Op]:
    """The op, and its causal form with these changes."""
    return {called: op, f"{called}-causal": op._replace(**causal)}


def kernel(normalizer: str) -> dict[str, Op]:
    """With features that are positive, except for "bounded"."""
    feature = times(0.25) if normalizer == "bounded" else torch.exp
    given = {"maps": {"BHQR": feature, "BHTR": feature}, "per_step": 66, "folder": "kernel_attention", **LONG_SUMS}
    return both(
        f"kernel-{normalizer}",
        Op("kernel_attention", "BHQR BHTR BHTE", {"normalizer": normalizer}, **given),
        name="kernel_causal_attention",
        shapes="BHTR BHTR BHTE",
        steps=True,
    )


def fastformer(name: str, combine: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Op]:
    given = {"extra": combine, "per_step": 65, "zero": combine is torch.mul, "folder": "fastformer_attention"}
    return both(
        f"fastformer-{name}",
        Fastformer("fastformer_attention", f"{QKV} HHD HHD", **LONG_SUMS, **given),
        name="fastformer_causal_attention",
        steps=True,
    )


def luna(shapes: str = f"{QKV} BHLD BHTD", activation: str = "softplus", **given: Any) -> Op:
    given |= {"steps": True, "long": True, "per_step": 64}
    return LunaCausal("luna_causal_attention", shapes, {"activation": activation}, **given)


# The attention of a form of block attention, and the function that reads the blocks.
BLOCK_FORMS = {
    "gathered": (two_level_attention.gathered_block_attention, gather_block_of_each_step),
    "masked": (two_level_attention.masked_block_attention, two_level_attention.multiply_block_of_each_step),
    "mean": (two_level_attention.unordered_block_attention, gather_block_of_each_step),
    "sum": (two_level_attention.unordered_block_attention, gather_block_of_each_step),
}


def block(form: str) -> dict[str, Op]:
    reduce = form if form in ("mean", "sum") else None
    options, name = ({"reduce": reduce}, "unordered_block_attention") if reduce else ({}, "block_attention")
    maps = {"DD": times(0.35)} | ({"BHTD": times(BLOCK**-0.5)} if reduce == "sum" else {})
    given = {"extra": BLOCK_FORMS[form], "undefined": True, "maps": maps, "folder": "block_attention"}
    return both(
        f"block-{form}",
        Block(name, f"{'BHTD' if reduce else QKV} DD DD DD D D", options, **given),
        options={**options, "block_size": BLOCK},
        steps=True,
    )


def pattern(name: str, extra: Any) -> dict[str, Op]:
    per_step = None if name in ("wide-window", "topk", "strided") else 512
    whole = Pattern("pattern_attention", QKV, extra=extra, per_step=per_step)
    if name in PATTERNS_FOR_ENCODERS:
        return {name: whole}
    return both(name, whole, options={"causal": True}, steps=True)


def synthesizer(name: str, shapes: str) -> dict[str, Op]:
    whole = Synthesizer("synthesizer_attention", shapes)
    return both(f"synthesizer-{name}", whole, options={"causal": True}, steps=True)


def mixed_chunks(size: int) -> dict[str, Op]:
    options, given = {"chunk_size": size}, {"sizes": {"J": 2 * size - 1}, "sums": True}
    given["per_step"] = 66 if size == 7 else None
    return both(
        f"mixed-chunks-{size}",
        Op("mixed_chunk_attention", "BHTR BHTR BHTR BHTR BHTD J", options, **given),
        options={**options, "causal": True},
        sizes={"J": size},
        per_step=600 if size == 7 else None,
        steps=True,
    )


def folded(name: str, shapes: str, **given: Any) -> Op:
    return Folded(name, shapes, maps={"CC": times(0.25)}, folder="folded_attention", **given)


def nystrom(landmarks: int) -> Op:
    given = {"maps": {"HK": times(0.5)}, "undefined": True, "rounding": 2.5}
    given["per_step"] = 130 if landmarks == 7 else None
    return Op("nystrom_attention", f"{QKV} HK", {"num_landmarks": landmarks}, **given)


def reformer(chunk: int) -> Op:
    given = {"constants": 1, "per_step": 800 if chunk == 4 else None}
    return Op("reformer_attention", "BHTD BHTD NDM", {"chunk_size": chunk}, **given)


def transformer_xl(segment: int, memory: int) -> dict[str, Op]:
    options = {"segment": segment, "memory": memory}
    whole = TransformerXl("transformer_xl_attention", f"{QKV} HD HD HDC", options, per_step=160)
    return both(f"transformer-xl-{segment}-{memory}", whole, options={**options, "causal": True}, steps=True)


def binary_partition(nodes: int, levels: int) -> dict[str, Op]:
    sizes = {"K": nodes, "N": levels}
    whole = Op("binary_partition_attention", f"{QKV} HD D NVKD", sizes={**sizes, "V": 2}, per_step=600)
    options = {"causal": True}
    return both(f"bp-{nodes}", whole, options=options, sizes={**sizes, "V": 1}, steps=True)


def routing(window: int) -> Op:
    given = {"sizes": {"M": 6}} if window < 32 else {"per_step": 70}
    return Op("routing_attention", "BHTD BHTD HMD", {"window": window}, constants=1, **given)


def routing_causal(window: int, clusters: int, **given: Any) -> Op:
    given |= {"folder": "routing_attention", "sizes": {"M": clusters}, "constants": 1, "steps": True}
    return Op("routing_causal_attention", "BHTD BHTD HMD", {"window": window}, **given)


DECAYS = {"BHT": lambda x: -0.3 * x.abs()}
DECAY = Op("decay_attention", "BHTD BHTD BHTE BHT", {"causal": False}, maps=DECAYS, per_step=64, **LONG_SUMS)
SPANS = {"H": lambda x: 4 * x.abs()}
SOFT_WINDOW = SoftWindow("pattern_attention", f"{QKV} H", extra=Window(9, ramp=4), maps=SPANS, per_step=512)
OPS: dict[str, Op] = {
    "softmax": Op("softmax_attention", QUERY_KV, {"need_weights": True}),
    "prefix-attention": Prefix("prefix_attention", "BHTD BHTD BHTE", steps=True, per_step=64, **LONG_SUMS),
    **both("decay", DECAY, options={}, steps=True),
    "gated-delta-rule": Delta("gated_delta_rule", "BHTD BHTD BHTE BHT BHT", steps=True, per_step=100, **LONG_SUMS),
    "prefix-softmax": Op("prefix_softmax", "BHT BHTD", steps=True, per_step=65, **LONG_SUMS),
    "linear-recurrence": Recurrence("linear_recurrence", "BHTD BHTD", steps=True, per_step=64, **LONG_SUMS),
    **kernel("sum"),
    **kernel("bounded"),
    **kernel("each feature"),
    **fastformer("product", torch.mul),
    **fastformer("sum", torch.add),
    "luna": luna(),
    "luna-elu": luna(activation="elu"),
    "luna-tied": luna("BHTD BHTD BHLD BHTD"),
    "luna-padded-slots": luna(f"{QKV} BHLD BHTD BL", constants=1),
    "pack": folded("pack", "BHQD BTC CC C CC C"),
    "pack-without-bias": folded("pack", "BHQD BTC CC CC"),
    "unpack": folded("unpack", "BQC BHTD BHTD CC C CC C", zero=False),
    "unpack-without-bias": folded("unpack", "BQC BHTD BHTD CC CC"),
    **block("gathered"),
    **block("masked"),
    **block("mean"),
    **block("sum"),
    "topk-source": Op("topk_attention", QUERY_KV, {"count": 5, "need_weights": True}, folder="pattern_attention"),
    **{name: op for each in (PATTERNS | PATTERNS_FOR_ENCODERS).items() for name, op in pattern(*each).items()},
    **both("soft-window", SOFT_WINDOW, options={"causal": True}, steps=True),
    "linformer": Op("linformer_attention", f"{QUERY_KV} SW SW", maps={"SW": times(0.25)}, per_step=64),
    **both(
        "external",
        Op("external_attention", "BHTD SD SE", per_step=64, folder="external_attention", **LONG_SUMS),
        name="external_causal_attention",
        steps=True,
    ),
    "nystrom-1": nystrom(1),
    "nystrom-7": nystrom(7),
    "nystrom-1000": nystrom(1000),
    **synthesizer("words", "BHPP BHTD"),
    **synthesizer("positions", "1HPP BHTD"),
    **both(
        "synthesizer-keys",
        Op("position_attention", "BHTR HPR BHTD", folder="synthesizer_attention"),
        options={"causal": True},
    ),
    **mixed_chunks(1),
    **mixed_chunks(7),
    **mixed_chunks(1000),
    "reformer-1": reformer(1),
    "reformer-4": reformer(4),
    "reformer-1000": reformer(1000),
    "star": Op("star_attention", f"{QKV} BH1D BH1D", per_step=65),
    "routing-2": routing(2),
    "routing-8": routing(8),
    "routing-32": routing(32),
    "routing-2-causal": routing_causal(2, 6),
    "routing-7-causal": routing_causal(7, 4),
    "routing-32-causal": routing_causal(32, 6, per_step=130),
    "routing-one-cluster-causal": routing_causal(200, 1),
    **transformer_xl(8, 9),
    **transformer_xl(16, 4),
    **binary_partition(1, 4),
    **binary_partition(3, 2),
}


class Call(NamedTuple):
    """A function of an op's inputs alone, for two sentences."""

    op: Op
    function: Callable[..., Any]

    def make(self, like: Tensor) -> list[Tensor]:
        return self.op.make(like, B=2)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tensors(self.function(*inputs))


def of_form(op: Op, form: str) -> Call:
    """With padding."""

    def function(*inputs: Tensor) -> tuple[Tensor, ...]:
        mask = torch.zeros(2, 40, dtype=torch.bool, device=inputs[0].device)
        mask[:, ::7] = True
        return op(form, inputs, mask)

    return Call(op, function)


def of_first_steps(op: Op) -> Call:
    return Call(op, lambda *inputs: [*op.in_steps(op.of_steps(inputs, slice(0, 10)))])


def kernel_weights(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    state = kernel_attention.kernel_mean_of(k, v)
    return [kernel_attention.kernel_weights(q, k, state, normalizer=name) for name in kernel_attention.NORMALISERS]


def luna_after_memory(q: Tensor, k: Tensor, v: Tensor, pq: Tensor, pk: Tensor) -> Any:
    scores = luna_causal_attention.pack_scores(pq, pk)
    state = luna_causal_attention.state_after(k, v, scores, tied=False)
    return luna_causal_attention.luna_causal_attention_step(*(x[:, :, :1] for x in (q, k, v, scores)), state)


def with_learned_map(q: Tensor, k: Tensor, _: Tensor) -> Tensor:
    size = q.shape[-1]
    return feature_maps.hedgehog_features(q, k[0, :, :size], k[0, :, size])


def means_of_blocks(x: Tensor, *_: Tensor) -> Any:
    mask = torch.zeros(x.shape[0], x.shape[2], dtype=torch.bool, device=x.device)
    return block_means(x[:, 0].transpose(0, 1), cut_by_number(mask, 0, dtype=x.dtype))


FORMS = {name: of_form(op, "fast") for name, op in OPS.items()}
FORMS |= {f"{name}-step": of_first_steps(op) for name, op in OPS.items() if op.steps}
SPECIFICATIONS = {name: of_form(op, "naive") for name, op in OPS.items()}
# Autocast leaves them in fp32.
SUMS = {
    **{name: call for name, call in FORMS.items() if call.op.sums},
    "kernel-weights": Call(OPS["kernel-sum"], kernel_weights),
    "prefix-mean-of": Call(OPS["prefix-attention"], lambda q, k, v: prefix_attention.prefix_mean_of(k, v)),
    "elu-features": Call(OPS["window"], lambda q, *_: feature_maps.elu_features(q)),
    "hedgehog-features": Call(OPS["window"], with_learned_map),
    "block-means": Call(OPS["window"], means_of_blocks),
}
ATTENTIONS = {**FORMS, **SUMS, "luna-step-after-memory": Call(OPS["luna"], luna_after_memory)}

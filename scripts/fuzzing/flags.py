"""Values for every flag of this package, and for flags of fairseq's that affect its code.

The value of a switch is the empty string.
"""

import dataclasses
from typing import Any, NamedTuple

from fairseq_luna.models.mixed import config
from fairseq_luna.models.mixed.attentions import ATTENTIONS, PLACES
from fairseq_luna.models.roberta.config import LunaRobertaConfig, MixedRobertaConfig
from fairseq_luna.models.transformer.checks import flag

PYRAMID = "block_pyramid_classifier"


class Values(NamedTuple):
    """``good`` values are valid if the other flags fit; ``bad`` ones must be refused with any other flags."""

    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()


Table = dict[str, Values]

_SWITCH = Values(("",))
_RATE = Values(("0", "0.1", "0.5", "0.9"), ("-0.1", "1", "1.5", "nan"))
_LAYERS = Values(("1", "2"), ("0", "-1"))
_SIZE = Values(("1", "2", "4", "6", "8", "12", "16"), ("0", "-8"))
_HEADS = Values(("1", "2", "3", "4"), ("0", "-1"))
_KERNEL = Values(("0", "1", "3", "5", "101"), ("2", "-1", "x"))
_POSITIONS = Values(("1", "2", "5", "64", "100000"), ("0", "-4"))
_KEPT = Values(("0", "1", "0,1", "1, 0", "5"), ("0,0", "x", "-1", "0,,1"))
_ACTIVATION = Values(("relu", "gelu", "gelu_fast", "gelu_accurate", "tanh", "linear"), ("swish",))

_TRANSFORMER: Table = {
    "--activation-fn": _ACTIVATION,
    "--dropout": _RATE,
    "--attention-dropout": _RATE,
    "--activation-dropout": _RATE,
    "--relu-dropout": _RATE,
    "--encoder-embed-path": Values(("{embeddings}", "{missing}")),
    "--decoder-embed-path": Values(("{embeddings}",)),
    "--encoder-embed-dim": _SIZE,
    "--encoder-ffn-embed-dim": _SIZE,
    "--encoder-layers": _LAYERS,
    "--encoder-attention-heads": _HEADS,
    "--encoder-normalize-before": _SWITCH,
    "--encoder-learned-pos": _SWITCH,
    "--encoder-layerdrop": _RATE,
    "--encoder-layers-to-keep": _KEPT,
    "--max-source-positions": _POSITIONS,
    "--decoder-embed-dim": _SIZE,
    "--decoder-ffn-embed-dim": _SIZE,
    "--decoder-layers": _LAYERS,
    "--decoder-attention-heads": _HEADS,
    "--decoder-normalize-before": _SWITCH,
    "--decoder-learned-pos": _SWITCH,
    "--decoder-layerdrop": _RATE,
    "--decoder-layers-to-keep": _KEPT,
    "--alignment-layer": Values(("0", "1"), ("-1", "x")),
    "--alignment-heads": Values(("1", "2"), ("0", "-1")),
    "--decoder-input-dim": Values(("8",), ("0", "-8")),
    "--decoder-output-dim": Values(("1", "4", "8"), ("0", "-8")),
    "--max-target-positions": _POSITIONS,
    "--share-decoder-input-output-embed": _SWITCH,
    "--share-all-embeddings": _SWITCH,
    "--merge-src-tgt-embed": _SWITCH,
    "--no-token-positional-embeddings": _SWITCH,
    "--adaptive-softmax-cutoff": Values(("4", "8,16", "24", "1000"), ("0", "8,4", "-4", "4,4", "x")),
    "--adaptive-softmax-dropout": Values(("0", "0.5", "-0.1", "1", "2", "nan")),  # only used with the cutoff
    "--adaptive-softmax-factor": Values(("1", "2", "4", "0.5", "100", "0", "-1", "nan", "inf")),  # the same
    "--layernorm-embedding": _SWITCH,
    "--tie-adaptive-weights": Values(bad=("",)),
    "--tie-adaptive-proj": Values(bad=("",)),
    "--no-scale-embedding": _SWITCH,
    "--checkpoint-activations": _SWITCH,
    "--offload-activations": _SWITCH,
    "--no-cross-attention": _SWITCH,
    "--cross-self-attention": _SWITCH,
    "--quant-noise-pq": Values(("0", "0.1", "0.5"), ("-0.1", "1", "2", "nan")),
    "--quant-noise-pq-block-size": Values(("1", "2", "3", "4", "8"), ("0", "-1")),
    "--quant-noise-scalar": Values(("0", "0.5", "1"), ("-0.1", "2", "nan")),
    "--min-params-to-wrap": Values(("1", "100000000")),
    "--export": _SWITCH,
    "--no-decoder-final-norm": _SWITCH,
    "--adaptive-input": Values(bad=("",)),
    "--char-inputs": Values(bad=("",)),
    "--base-layers": Values(("0",), ("1",)),
    "--base-sublayers": Values(("1",)),
    "--base-shuffle": Values(("1",)),
    "--encoder-xformers-att-config": Values(bad=('{"name":"x"}',)),
    "--decoder-xformers-att-config": Values(bad=('{"name":"x"}',)),
}

_LUNA: Table = {
    "--projection-length": Values(("1", "2", "4", "16", "1000"), ("0", "-1", "x")),
    "--fix-projection-length": _SWITCH,
    "--untie-luna-kv": _SWITCH,
    "--word-dropout": _RATE,
    "--luna-activation": Values(("softplus", "elu"), ("relu",)),
    "--luna-kernel-size": _KERNEL,
    "--luna-kernel": Values(("torch", "triton"), ("cuda",)),
    "--luna-segment-bias": Values(("0", "4", "-1.5"), ("nan", "inf", "x")),
    "--luna-source-attention": Values(("packed", "softmax"), ("full",)),
    "--encoder-projected-attention-heads": _HEADS,
    "--decoder-projected-attention-heads": _HEADS,
}

_FASTFORMER: Table = {
    "--fastformer-combine": Values(("product", "sum", "concat"), ("max",)),
    "--fastformer-residual": Values(("query", "global-query"), ("none",)),
    "--fastformer-share": Values(("none", "query-value", "query-key-value"), ("key",)),
    "--fastformer-kernel-size": _KERNEL,
    "--fastformer-share-layers": _SWITCH,
}

_BLOCK: Table = {
    "--num-blocks": Values(("0", "1", "2", "5", "1000"), ("-1",)),
    "--random-blocks": _SWITCH,
    "--share-block-levels": _SWITCH,
    "--share-block-layers": _SWITCH,
    "--unordered-blocks": Values(("none", "mean", "sum"), ("max",)),
    "--block-kernel-size": _KERNEL,
    "--decoder-block-size": Values(("1", "2", "3", "8", "1000"), ("0", "-1")),
}


def _names(place: str) -> Values:
    able = [name for name, attention in ATTENTIONS.items() if place in attention.factories()]
    return Values((*able,), (*(name for name in ATTENTIONS if name not in able), "none"))


_READ = {flag(name) for name in config.OPTIONS}
NAMES: Table = {flag(field): _names(place) for place, field in PLACES.items()}
_MIXED: Table = {
    **NAMES,
    "--attention-kernel-size": _KERNEL,
    "--num-features": Values(("1", "3", "16"), ("0", "-1")),
    "--redraw-features": Values(("0", "1", "3", "1000"), ("-1",)),
    "--attention-window": Values(("1", "3", "16", "1000"), ("0", "-1")),
    "--attention-dilation": Values(("1", "2", "5"), ("0", "-1")),
    "--attention-chunk": Values(("1", "2", "32", "1000"), ("0", "-1")),
    "--attention-topk": Values(("1", "3", "8", "1000"), ("0", "-1")),
    "--num-hashes": Values(("1", "2", "8"), ("0", "-1")),
    "--num-slots": Values(("1", "3", "100"), ("0", "-1")),
    "--linformer-share": Values(("none", "kv", "layers"), ("k",)),
    **{name: values for name, values in (_FASTFORMER | _BLOCK).items() if name in _READ},
}

_FAMILIES: dict[str, Table] = {"luna": _LUNA, "fastformer": _FASTFORMER, "block": _BLOCK, "mixed": _MIXED}

_PYRAMID: Table = {
    "--pyramid-block-sizes": Values(("2", "4,8", "2, 3,2", "1000"), ("", "1", "0", "-4", "x", "4,,8")),
    "--encoder-embed-dim": _SIZE,
    "--encoder-ffn-embed-dim": _SIZE,
    "--encoder-layers": Values(("1", "2", "9"), ("0", "-1")),
    "--encoder-attention-heads": _HEADS,
    "--encoder-normalize-before": _SWITCH,
    "--encoder-learned-pos": _SWITCH,
    "--no-token-positional-embeddings": _SWITCH,
    "--activation-fn": _ACTIVATION,
    "--dropout": _RATE,
    "--attention-dropout": _RATE,
    "--activation-dropout": _RATE,
    "--pooler-activation-fn": _ACTIVATION,
    "--pooler-dropout": _RATE,
    "--max-source-positions": _POSITIONS,
    "--max-positions": Values(("8", "64", "100000")),
}

_READER: Table = {
    **(_PYRAMID | _TRANSFORMER),
    "--pooling": Values(("cls", "mean", "attention"), ("max",)),
    "--untie-weights-roberta": _SWITCH,
    "--load-checkpoint-heads": _SWITCH,
    "--share-encoder-layers": _SWITCH,
}


def _of(config: Any, table: Table) -> Table:
    names = {flag(field.name) for field in dataclasses.fields(config)}
    return {name: values for name, values in table.items() if name in names}


# Families of classifiers; all others translate.
CLASSIFIERS: dict[str, Table] = {
    PYRAMID: _PYRAMID,
    "luna_roberta": _of(LunaRobertaConfig, _READER | _LUNA),
    "mixed_roberta": _of(MixedRobertaConfig, _READER | _MIXED),
}
MODELS: dict[str, Table] = {family: _TRANSFORMER | own for family, own in _FAMILIES.items()} | CLASSIFIERS

_RATES_OF_LEARNING = Values(("1e-8", "0.001", "0.1", "2", "0.1,0.01"), ("-1", "nan", "inf", "x"))
_DECAY = Values(("0", "1e-8", "0.1"), ("-1", "nan"))

OPTIMIZERS: dict[str, Table] = {
    "apollo": {
        "--lr": _RATES_OF_LEARNING,
        "--apollo-beta": Values(("0", "0.5", "0.9"), ("1", "-0.1", "nan")),
        "--apollo-eps": Values(("1e-8", "1e-4", "1"), ("0", "-1", "nan", "inf")),
        "--apollo-rebound": Values(("constant", "belief"), ("trust",)),
        "--apollo-clip-mode": Values(("total", "each"), ("none",)),
        "--weight-decay": _DECAY,
        "--weight-decay-type": Values(("L2", "decoupled", "stable"), ("l2",)),
    },
    "adam": {
        "--lr": Values(_RATES_OF_LEARNING.good, ("nan", "inf", "x")),
        "--adam-betas": Values(("(0.9, 0.98)", "(0, 0)")),
        "--adam-eps": Values(("1e-8", "1e-4")),
        "--weight-decay": Values(_DECAY.good),
    },
}

SCHEDULERS: dict[str, Table] = {
    "fixed": {"--warmup-updates": Values(("0", "2"))},
    "inverse_sqrt": {"--warmup-updates": Values(("1", "4")), "--warmup-init-lr": Values(("0", "1e-5"))},
    "milestone": {
        "--milestones": Values(("1", "5", "5,9"), ("5,3", "5,5", "0", "-1", "x")),
        "--lr-decay-rate": Values(("0.1", "0.5", "1"), ("0", "-0.1", "2", "nan")),
        "--warmup-updates": Values(("0", "1", "4", "10"), ("-1",)),
        "--warmup-init-lr": Values(("0", "1e-5"), ("-1", "nan", "inf")),
    },
}

LABEL_SMOOTHED = ("label_smoothed_cross_entropy", "label_smoothed_cross_entropy_chunked")
CRITERIA: dict[str, Table] = {
    **{name: {"--label-smoothing": Values(("0", "0.1", "1"))} for name in LABEL_SMOOTHED},
    "cross_entropy": {},
    "adaptive_loss": {},
    "sentence_prediction": {},
}

# The trainer's and the task's flags. Combinations of half precisions are not drawn.
TRAINING: Table = {
    "--clip-norm": Values(("0", "0.1", "10", "inf")),
    "--sentence-avg": _SWITCH,
    "--update-freq": Values(("1", "1,2")),
}
TRANSLATION: Table = {
    "--left-pad-source": _SWITCH,
    "--left-pad-target": _SWITCH,
}
PRECISIONS: tuple[tuple[str, ...], ...] = (
    ("--bf16",),
    ("--memory-efficient-bf16",),
    ("--fp16", "--fp16-no-flatten-grads"),
    ("--memory-efficient-fp16",),
    ("--fp16",),
    ("--amp",),
)

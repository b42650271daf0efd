"""Values for every flag of this package, and for flags of fairseq's that affect its code.

Switches and choices are read from the parser, numbers of attentions from their declarations; VALUES has the others, and
switches that must be refused. The value of a switch is the empty string.
"""

from argparse import SUPPRESS, ArgumentParser
from typing import Any, NamedTuple

from fairseq.models import MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY

import fairseq_luna.models  # noqa: F401 (registers the models)
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, PLACES, available_in
from fairseq_luna.models.shared.flag_checks import flag
from fairseq_luna.modules.declaration import merged_flags


class Values(NamedTuple):
    """``good`` values are valid if the other flags fit; ``bad`` ones must be refused with any other flags."""

    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()


Table = dict[str, Values]

SWITCH = Values(("",))
_RATE = Values(("0", "0.1", "0.5", "0.9"), ("-0.1", "1", "1.5", "nan"))
_KERNEL = Values(("0", "1", "3", "5", "101"), ("2", "-1", "x"))
_COUNT = Values(("1", "2", "3", "8", "1000"), ("0", "-1", "x"))


def _declared_numbers() -> Table:
    """Values of the numbers that attentions declare: from the least to large ones, and below the least."""
    found = {}
    for name, declared in merged_flags(ATTENTIONS.values()).items():
        if declared.kind not in (int, float):
            continue
        assert declared.minimum is not None, f"{name} needs a minimum"
        least, below = (f"{number:g}" for number in (declared.minimum, declared.minimum - 1))
        if declared.kind is int:
            found[flag(name)] = Values((least, "1", "2", "3", "8", "1000"), (below, "-1", "x"))
        else:
            found[flag(name)] = Values((least, f"{declared.default:g}", "1"), (below, "nan", "inf", "x"))
    return found


_OF_SIDES: Table = {
    "embed-dim": Values(("1", "2", "4", "6", "8", "12", "16"), ("0", "-8")),
    "ffn-embed-dim": Values(("1", "2", "8", "16"), ("0", "-8")),
    "layers": Values(("1", "2"), ("0", "-1")),
    "attention-heads": Values(("1", "2", "3", "4"), ("0", "-1")),
    "projected-attention-heads": Values(("1", "2", "3", "4"), ("0", "-1")),
    "layerdrop": _RATE,
    "layers-to-keep": Values(("0", "1", "0,1", "1, 0", "5"), ("0,0", "x", "-1", "0,,1")),
    "xformers-att-config": Values(bad=('{"name":"x"}',)),
}
_POSITIONS = Values(("1", "2", "5", "64", "100000"), ("0", "-4"))
# Names that stand in a place; the model refuses the others.
NAMES: Table = {
    flag(field): Values(
        (*available_in(place),), (*(name for name in ATTENTIONS if name not in available_in(place)), "none")
    )
    for place, field in PLACES.items()
}
VALUES: Table = {
    **{f"--{side}-{name}": values for side in ("encoder", "decoder") for name, values in _OF_SIDES.items()},
    **NAMES,
    **{f"--{part}dropout": _RATE for part in ("", "attention-", "activation-", "relu-", "pooler-", "word-")},
    **{f"--max-{side}-positions": _POSITIONS for side in ("source", "target")},
    "--attention-kernel-size": _KERNEL,
    "--projection-length": _COUNT,
    "--compile-layers": Values(),  # takes minutes; tests/models/test_compiled_layers.py trains with it
    **_declared_numbers(),
    "--max-positions": Values(("8", "64", "100000")),
    "--encoder-embed-path": Values(("{embeddings}", "{missing}")),
    "--decoder-embed-path": Values(("{embeddings}",)),
    "--alignment-layer": Values(("0", "1"), ("-1", "x")),
    "--alignment-heads": Values(("1", "2"), ("0", "-1")),
    "--decoder-input-dim": Values(("8",), ("0", "-8")),
    "--decoder-output-dim": Values(("1", "4", "8"), ("0", "-8")),
    "--adaptive-softmax-cutoff": Values(("4", "8,16", "24", "1000"), ("0", "8,4", "-4", "4,4", "x")),
    "--adaptive-softmax-dropout": Values(("0", "0.5", "-0.1", "1", "2", "nan")),  # only used with the cutoff
    "--adaptive-softmax-factor": Values(("1", "2", "4", "0.5", "100", "0", "-1", "nan", "inf")),  # the same
    **dict.fromkeys(("--tie-adaptive-weights", "--tie-adaptive-proj"), Values(bad=("",))),
    **dict.fromkeys(("--adaptive-input", "--char-inputs"), Values(bad=("",))),
    "--quant-noise-pq": Values(("0", "0.1", "0.5"), ("-0.1", "1", "2", "nan")),
    "--quant-noise-pq-block-size": Values(("1", "2", "3", "4", "8"), ("0", "-1")),
    "--quant-noise-scalar": Values(("0", "0.5", "1"), ("-0.1", "2", "nan")),
    "--min-params-to-wrap": Values(("1", "100000000")),
    "--base-layers": Values(("0",), ("1",)),
    **dict.fromkeys(("--base-sublayers", "--base-shuffle"), Values(("1",))),
    "--luna-segment-bias": Values(("0", "4", "-1.5"), ("nan", "inf", "x")),
    "--pyramid-block-sizes": Values(("2", "4,8", "2, 3,2", "1000"), ("", "1", "0", "-4", "x", "4,,8")),
    "--apollo-beta": Values(("0", "0.5", "0.9"), ("1", "-0.1", "nan")),
    "--apollo-eps": Values(("1e-8", "1e-4", "1"), ("0", "-1", "nan", "inf")),
    "--weight-decay": Values(("0", "1e-8", "0.1"), ("-1", "nan")),
    "--milestones": Values(("1", "5", "5,9"), ("5,3", "5,5", "0", "-1", "x")),
    "--lr-decay-rate": Values(("0.1", "0.5", "1"), ("0", "-0.1", "2", "nan")),
    "--warmup-updates": Values(("0", "1", "4", "10"), ("-1",)),
    "--warmup-init-lr": Values(("0", "1e-5"), ("-1", "nan", "inf")),
}


def table(registered: Any) -> Table:
    """Values for every flag of a registered class. Raises KeyError for a flag that lacks them."""
    parser = ArgumentParser(allow_abbrev=False, add_help=False)
    registered.add_args(parser)
    found: Table = {}
    for action in parser._actions:
        if action.help == SUPPRESS:  # an older name
            continue
        for option in action.option_strings:
            choices = Values(tuple(map(str, action.choices or ())), ("none-such",))
            read = SWITCH if action.nargs == 0 else choices if action.choices else None
            found[option] = VALUES.get(option, read) or VALUES[option]
    return found


FAMILIES = ("luna", "fastformer", "block", "mixed")
CLASSIFIERS = ("block_pyramid_classifier", "luna_roberta", "mixed_roberta")
MODELS = {name: table(MODEL_REGISTRY[name]) for name in (*FAMILIES, *CLASSIFIERS)}
_RATES_OF_LEARNING = ("1e-8", "0.001", "0.1", "2", "0.1,0.01")
OPTIMIZERS: dict[str, Table] = {
    "apollo": {
        **{"--lr": Values(_RATES_OF_LEARNING, ("-1", "nan", "inf", "x")), "--weight-decay": VALUES["--weight-decay"]},
        **table(OPTIMIZER_REGISTRY["apollo"]),
    },
    "adam": {
        "--lr": Values(_RATES_OF_LEARNING, ("nan", "inf", "x")),
        "--adam-betas": Values(("(0.9, 0.98)", "(0, 0)")),
        "--adam-eps": Values(("1e-8", "1e-4")),
        "--weight-decay": Values(("0", "0.1")),
    },
}
SCHEDULERS: dict[str, Table] = {
    "fixed": {"--warmup-updates": Values(("0", "2"))},
    "inverse_sqrt": {"--warmup-updates": Values(("1", "4")), "--warmup-init-lr": Values(("0", "1e-5"))},
    "milestone": table(LR_SCHEDULER_REGISTRY["milestone"]),
}
LABEL_SMOOTHED = ("label_smoothed_cross_entropy", "label_smoothed_cross_entropy_chunked")
CRITERIA: dict[str, Table] = {
    **{name: {"--label-smoothing": Values(("0", "0.1", "1"))} for name in LABEL_SMOOTHED},
    **{name: {} for name in ("cross_entropy", "adaptive_loss", "sentence_prediction")},
}
# The trainer's and the task's flags. Combinations of half precisions are not drawn.
TRAINING: Table = {
    "--clip-norm": Values(("0", "0.1", "10", "inf")),
    "--sentence-avg": SWITCH,
    "--update-freq": Values(("1", "1,2")),
}
TRANSLATION: Table = {"--left-pad-source": SWITCH, "--left-pad-target": SWITCH}
PRECISIONS: tuple[tuple[str, ...], ...] = (
    *(("--bf16",), ("--memory-efficient-bf16",), ("--fp16", "--fp16-no-flatten-grads")),
    *(("--memory-efficient-fp16",), ("--fp16",), ("--amp",)),
)

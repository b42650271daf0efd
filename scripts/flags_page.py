"""Print docs/flags.md, made of what fairseq's parser reads: python scripts/flags_page.py > docs/flags.md."""

import dataclasses
from argparse import SUPPRESS
from collections.abc import Iterator
from enum import Enum

from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.models.roberta import RobertaModel

from fairseq_luna.command_line import Parser
from fairseq_luna.commands.converting.converted_settings import SHARED
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, PLACES
from fairseq_luna.optim.fairseq_apollo import FairseqApolloConfig
from fairseq_luna.optim.milestone_lr import MilestoneLRScheduleConfig

INTRODUCTION = """# Flags

This page is made by `python scripts/flags_page.py` from what fairseq's parser reads, so that it agrees with the code.
`fairseq-luna info --arch NAME` prints the flags of an architecture; fairseq-train's help ends before them.

An architecture (`--arch NAME`) sets only what differs from its model's defaults; a flag on the command line overrides
it. `--decoder-embed-dim` and `--decoder-ffn-embed-dim` default to the encoder's; numbers of layers and heads do not.

Every flag of fairseq's transformer keeps its meaning or is refused in one line. Refused are `--adaptive-input`,
`--tie-adaptive-weights`, `--tie-adaptive-proj`, `--char-inputs`, `--base-layers`, `--*-xformers-att-config`,
`--full-context-alignment`, `--cross-self-attention` for other models than Luna, and `--no-cross-attention` without it.
`--print-alignment` of fairseq-generate prints the weights of the cross-attention.

Under `fairseq-hydra-train` a flag is a key with underscores: `model.projection_length=32` overrides one that stands in
the YAML, `+model.projection_length=32` adds it, because fairseq loads the plugin after the overrides.
"""
FAMILIES = {
    "luna": "Luna: `--arch luna_base`",
    "fastformer": "Fastformer: `--arch fastformer_base`",
    "block": "Block attention: `--arch block_base`",
    "mixed": "Attentions by name: `--arch mixed_base`",
}
READERS = {
    "luna_roberta": "RoBERTa: `--arch luna_roberta_base`, `mixed_roberta_base`",
    "block_pyramid_classifier": "The block pyramid: `--arch block_pyramid_classifier`",
}
LONGEST_LIST = 8
Fields = dict[str, dataclasses.Field]


def fields(config: type) -> Fields:
    """Those that are flags of their own, not another part's of fairseq's config, without older names."""
    found = {field.name: field for field in dataclasses.fields(config) if not field.name.startswith("_")}
    shown = {name: field for name, field in found.items() if field.metadata.get("help") != SUPPRESS}
    return {name: field for name, field in shown.items() if not str(field.default).startswith("${")}


def default_of(field: dataclasses.Field) -> str:
    default = field.default.value if isinstance(field.default, Enum) else field.default
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:g}" if isinstance(default, int | float) else default if isinstance(default, str) else ""


def row(field: dataclasses.Field) -> str:
    """The line of one flag in a table."""
    text = field.metadata.get("help", "")
    kind = field.type
    if isinstance(kind, type) and issubclass(kind, Enum) and len(kind) <= LONGEST_LIST:
        text += f"; one of {', '.join(member.value for member in kind)}"
    return f"| `--{field.name.replace('_', '-')}` | {default_of(field)} | {text} |"


def table(title: str, flags: Fields) -> Iterator[str]:
    yield f"\n## {title}\n\n| flag | default | |\n| --- | --- | --- |"
    yield from map(row, flags.values())


def of_roberta() -> set[str]:
    parser = Parser("")
    RobertaModel.add_args(parser)
    return {action.dest for action in parser._actions}


def names() -> Iterator[str]:
    """Where each attention can stand."""
    yield "\n[Differences](differences.md) lists where an attention is not as published."
    yield "\n| name | encoder | decoder | cross-attention |\n| --- | --- | --- | --- |"
    for name, attention in ATTENTIONS.items():
        cells = ("yes" if place in attention.places else "" for place in PLACES)
        yield f"| `{name}` | {' | '.join(cells)} |"


def page() -> str:
    families = {name: fields(MODEL_DATACLASS_REGISTRY[name]) for name in FAMILIES}
    lines = [INTRODUCTION.rstrip()]
    for name, title in FAMILIES.items():
        lines += table(title, {key: field for key, field in families[name].items() if key not in SHARED})
        lines += names() if name == "mixed" else ()
    known = SHARED.keys() | of_roberta() | set.union(*map(set, families.values()))
    for name, title in READERS.items():
        own = {key: field for key, field in fields(MODEL_DATACLASS_REGISTRY[name]).items() if key not in known}
        lines += table(title, own)
        known |= own.keys()
    lines += table("Apollo: `--optimizer apollo`", fields(FairseqApolloConfig))
    lines += table("The milestone schedule: `--lr-scheduler milestone`", fields(MilestoneLRScheduleConfig))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")

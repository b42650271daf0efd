"""Drawing configurations: most have only valid values, some have one invalid value."""

from typing import NamedTuple

from hypothesis import strategies as st

from . import flags
from .flags import Table

# Tenths of all configurations.
WITH_A_BAD_VALUE, IN_HALF_PRECISION = 3, 1
MOST_FLAGS = 14

# A configuration of these sizes trains in a few hundredths of a second; drawn flags come later.
SIZES = ("--encoder-embed-dim=8", "--encoder-ffn-embed-dim=8", "--encoder-layers=1", "--encoder-attention-heads=2")
DECODER_SIZES = ("--decoder-layers=1", "--decoder-attention-heads=2")


class Flag(NamedTuple):
    """One flag as it is typed, and whether its value is invalid whatever the other flags are."""

    text: str
    is_bad: bool = False


class Configuration(NamedTuple):
    """The parts of a training, and its drawn flags; ``joined`` is whether source and target share a dictionary."""

    arch: str
    optimizer: str
    scheduler: str
    criterion: str
    joined: bool
    flags: tuple[Flag, ...]

    def arguments(self) -> list[str]:
        """The arguments of fairseq-train; names in braces stand for files."""
        task = ("--task=translation", "--source-lang=a", "--target-lang=b", *DECODER_SIZES)
        if self.arch in flags.CLASSIFIERS:
            task = ("--task=sentence_prediction", "--num-classes=3", "--max-positions=32")
        return [
            *("data", "--cpu", "--batch-size=8", f"--arch={self.arch}", *SIZES, *task),
            *(f"--optimizer={self.optimizer}", "--lr=0.01", f"--lr-scheduler={self.scheduler}"),
            *(f"--criterion={self.criterion}", "--ddp-backend=legacy_ddp", *(flag.text for flag in self.flags)),
        ]


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Any configuration."""
    arch, optimizer, scheduler = (
        draw(st.sampled_from(list(parts))) for parts in (flags.MODELS, flags.OPTIMIZERS, flags.SCHEDULERS)
    )
    parts = flags.MODELS[arch] | flags.OPTIMIZERS[optimizer] | flags.SCHEDULERS[scheduler] | flags.TRAINING
    if arch not in flags.CLASSIFIERS:
        parts |= flags.TRANSLATION
    usable = [name for name in parts if parts[name].good]
    names = draw(st.lists(st.sampled_from(usable), unique=True, max_size=MOST_FLAGS))
    if arch == "mixed":
        names += [name for name in flags.NAMES if name not in names]
    criterion = draw(st.sampled_from(_criteria(arch, names)))
    parts |= flags.CRITERIA[criterion]
    names += [name for name in flags.CRITERIA[criterion] if draw(st.booleans())]
    drawn = [Flag(_typed(name, draw(st.sampled_from(parts[name].good)))) for name in names]
    if draw(_tenths(WITH_A_BAD_VALUE)):
        drawn.append(draw(st.sampled_from(_bad(parts))))
    if draw(_tenths(IN_HALF_PRECISION)):
        drawn += map(Flag, draw(st.sampled_from(flags.PRECISIONS)))
    return Configuration(arch, optimizer, scheduler, criterion, draw(st.booleans()), tuple(drawn))


def _typed(name: str, value: str) -> str:
    return f"{name}={value}" if value else name


def _bad(parts: Table) -> list[Flag]:
    return [Flag(_typed(name, value), is_bad=True) for name, values in parts.items() for value in values.bad]


def _criteria(arch: str, names: list[str]) -> list[str]:
    """Criteria that fit the model; fairseq fails without a message for others."""
    if arch in flags.CLASSIFIERS:
        return ["sentence_prediction"]
    if "--adaptive-softmax-cutoff" in names:
        return ["adaptive_loss"]
    return [*flags.LABEL_SMOOTHED, "cross_entropy"]


def _tenths(share: int) -> st.SearchStrategy[bool]:
    """True in ``share`` tenths of the draws; shrinks to False."""
    return st.integers(0, 9).map(lambda drawn: drawn >= 10 - share)

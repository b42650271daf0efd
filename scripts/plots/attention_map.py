"""An attention map: the weights, and the words of its rows and columns."""

from typing import NamedTuple

from torch import Tensor

# The choices of --attention and --maps.
SIDES = ("encoder", "cross", "decoder")
LUNA_MAPS = ("pack", "unpack", "through")


class Axis(NamedTuple):
    """The rows or the columns of a map."""

    name: str
    labels: list[str]


class Pair(NamedTuple):
    """One sentence pair as a batch of one."""

    source: Tensor  # (1, S), ending in EOS
    prefix: Tensor  # (1, T), beginning with EOS: the decoder's input
    source_words: list[str]
    prefix_words: list[str]
    predicted_words: list[str]  # the next word at each step of the prefix

    @property
    def read(self) -> Axis:
        return Axis("source words", self.source_words)

    @property
    def written(self) -> Axis:
        return Axis("target words read", self.prefix_words)

    @property
    def predicted(self) -> Axis:
        return Axis("target word predicted", self.predicted_words)


class AttentionMap(NamedTuple):
    """The weights of every head of one attention.

    Args:
        side: "encoder", "cross" or "decoder".
        layer: counted from 0.
        kind: "pack", "unpack" or "through" of Luna; "query" or "key" of Fastformer; "weights" of fairseq's own.
        weights: ``(H, rows, columns)``.
        rows, columns: a label for each row and column of ``weights``.
        note: how to read the weights.
    """

    side: str
    layer: int
    kind: str
    weights: Tensor
    rows: Axis
    columns: Axis
    note: str


def slots(count: int) -> Axis:
    return Axis("slot", [str(slot) for slot in range(count)])

"""What is drawn of an attention: its weights, and the words that they belong to."""

from typing import NamedTuple

from torch import Tensor


class Axis(NamedTuple):
    """What the rows or the columns of a map are."""

    name: str
    labels: list[str]


class Pair(NamedTuple):
    """One sentence pair, as the model reads it: a batch of one."""

    source: Tensor  # (1, S), ending in EOS
    prefix: Tensor  # (1, T), beginning with EOS: what the decoder reads
    source_words: list[str]
    prefix_words: list[str]
    predicted_words: list[str]  # at each step of the prefix the word that comes next

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
        rows, columns: their meaning; as many labels as weights.
        note: what the numbers are.
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

"""Generation with fairseq: a decoder's step is a pure function, and this stores its state in fairseq's dictionary."""

from typing import Any, NamedTuple

from torch import Tensor

from ...modules.decoding_state import batch_size_of, select_rows
from ...ops.padding import Padding

# fairseq's generator passes one dictionary to all modules of a decoder, in which ours has this single key.
IncrementalState = dict[str, Any]
KEY = "fairseq_luna"

NO_LAYER = -1


class DecoderSource(NamedTuple):
    """The parts of the encoder's output that all steps of generation read, with one row for each sentence."""

    padding: Padding  # of the source
    packed_padding: Padding  # of Luna's packed sequence
    layers: tuple[Any, ...]  # for each layer a NamedTuple of tensors, such as cached keys and values, or None

    @property
    def sentences(self) -> int:
        """The number of rows; 0 if the layers read nothing of the source."""
        return batch_size_of(self.layers)


class DecoderStep(NamedTuple):
    """The results of a decoder's step."""

    features: Tensor  # (B, 1, C), the input of the output layer
    state: Any  # the state after the step: for each layer a NamedTuple of tensors (B, ...)
    weights: Tensor | None  # (H, B, 1, S), cross-attention weights of the layer that was asked for them
    inner_states: list[Tensor | None]  # each (1, B, C): the first layer's input, then the output of each layer


class Generation(NamedTuple):
    """The entry of fairseq's dictionary between two calls of its generator."""

    source: DecoderSource
    state: Any
    rows: int  # of the batch: sentences times beams
    weights_layer: int  # the layer whose cross-attention weights the source has been read for, or NO_LAYER

    def reordered(self, order: Tensor) -> "Generation":
        """With row ``order[i]`` as row i, which is what fairseq asks for when it selects beams or removes sentences.

        As in fairseq's own cross-attention, the rows of a batch that keeps its size remain beams of the same sentences,
        so that the source is not copied.
        """
        source, sentences = self.source, self.source.sentences
        if sentences and len(order) != self.rows:
            beams = self.rows // sentences
            source = select_rows(source, order.view(-1, beams)[:, 0] // beams)
        return Generation(source, select_rows(self.state, order), len(order), self.weights_layer)

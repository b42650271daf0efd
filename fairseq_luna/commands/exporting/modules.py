"""The modules that the two graphs of an exported model are made of; ``fairseq_luna.deployed.graphs`` runs them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...deployed.graphs import CONSTANT, EOS, PAD
from ...modules import BlockCausalAttention
from .tensors import DecoderStepForExport, EncoderForExport, Tensors


def decoder_step(model: nn.Module) -> DecoderStepForExport:
    """A step without padding, except for block attention: without it, whether a block ends is fixed in its graph."""
    return DecoderStepForExport(model, padded=any(isinstance(x, BlockCausalAttention) for x in model.modules()))


class Start(nn.Module):
    """The encoder, and the decoder's step that reads the end mark before the first word."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.encode = EncoderForExport(model)
        self.decode = decoder_step(model)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensors]:
        """``source (B, S)`` to the log-probabilities ``(B, V)`` of the first word, and the state."""
        return self.decode(torch.full_like(source[:, :1], EOS), self.encode(source), {})


class Step(nn.Module):
    """A later step of the decoder, with the selection of rows before it and of candidates after it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.decode = decoder_step(model)

    def forward(
        self, words: Tensor, scores: Tensor, rows: Tensor, positions: Tensor, state: Tensors
    ) -> tuple[Tensor, Tensor, Tensor, Tensors]:
        """See :meth:`fairseq_luna.deployed.graphs.Graphs.step`; ``positions`` has as many elements as words so far."""
        sentences, beam = words.shape
        for name, x in state.items():
            if CONSTANT in name:  # or the graph computes with both sizes: a fifth more operators
                torch._check(x.shape[0] == sentences)
        state = {name: x if CONSTANT in name else x.index_select(0, rows) for name, x in state.items()}
        so_far = F.pad(words.reshape(-1, 1), (positions.shape[0], 0))
        log_probs, state = self.decode(so_far, {}, state)
        total = scores.reshape(-1, 1)
        # The best of each beam first, then of all beams: fewer passes over the vocabulary. One of them may be padding.
        count = 2 * beam + 1
        some, found = log_probs.topk(count)
        some = torch.where(found == PAD, -torch.inf, some + total).view(sentences, -1)
        best, place = some.topk(2 * beam)
        index = found.view(sentences, -1).gather(1, place) + place // count * log_probs.shape[1]
        ends = (log_probs[:, EOS : EOS + 1] + total).view(sentences, beam)
        return best, index, ends, {name: x for name, x in state.items() if CONSTANT not in name}

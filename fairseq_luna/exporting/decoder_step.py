"""Encoders and decoder steps as modules whose inputs and outputs are tensors, for torch.export.

A decoder's step takes and returns its state. Here the state, and the decoder's cache of the source, are dictionaries of
named tensors. Models leave out masks where nothing is padded; here masks are kept for any input, or left out if asked.
``docs/translate.md`` says what can be exported and has an example.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..deployed.graphs import CONSTANT, EOS, PAD
from ..models.shared.generation import DecoderSource
from ..models.shared.source_rows import READ_BY_DECODERS
from ..modules import BlockCausalAttention
from ..modules.decoding_state import flatten_state, unflatten_state
from ..ops.padding import Padding
from ..usage_error import UsageError

Tensors = dict[str, Tensor]
# The beginnings of the names of what depends on the source alone, and of the state; layers are numbers.
CONSTANTS, STATE, LAYERS = f"decoder{CONSTANT}", "decoder/state/", "layers."


class EncoderForExport(nn.Module):
    """A model's encoder.

    Args:
        model: an encoder-decoder of this package, or the result of ``fairseq_luna.load`` or ``from_pretrained``.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = _unwrap_hub_interface(model).encoder

    def forward(self, src_tokens: Tensor) -> Tensors:
        """Encode ``src_tokens (B, S)`` int64.

        Returns:
            Input of a decoder: ``encoder_out (S, B, C)``, ``encoder_padding_mask (B, S)``, True = padding, and for
            Luna ``packed_out (L, B, C)`` and ``packed_padding_mask (B, L)``.
        """
        out = self.encoder.encode(src_tokens, Padding(src_tokens.eq(self.encoder.padding_idx)))
        return {name: out[name][0] for name in READ_BY_DECODERS if out.get(name)}


class DecoderStepForExport(nn.Module):
    """One step of a model's decoder, with its state as an argument and a result.

    The first step needs its own graph, because it reads the source and creates the state.

    Args:
        model: an encoder-decoder of this package, or the result of ``fairseq_luna.load`` or ``from_pretrained``.
        padded: whether the last tokens may be padding, which a beam search's are not; if not, the graph is smaller.
    """

    def __init__(self, model: Any, *, padded: bool = True) -> None:
        super().__init__()
        self.model = _unwrap_hub_interface(model)
        self.padded = padded

    def forward(self, prev_output_tokens: Tensor, source: Tensors, state: Tensors) -> tuple[Tensor, Tensors]:
        """Compute the log-probabilities of the next token.

        Args:
            prev_output_tokens: ``(B, T)`` int64, all tokens so far; only the last is read, and T for its position.
            source: the result of :class:`EncoderForExport`, with the same rows as ``prev_output_tokens``; later steps
                do not read it and take an empty one too.
            state: of the previous step, empty at the first; the first axis of each tensor is B. A tensor with
                ``/constants/`` in its name depends on the source alone: it may have fewer rows, each as many
                consecutive rows of ``prev_output_tokens`` read.

        Returns:
            ``(B, V)``, and the state after this step.
        """
        decoder = self.model.decoder
        if state:
            cached, before = from_tensors(decoder, state)
        else:
            encoder_out = {name: [source[name]] if name in source else [] for name in READ_BY_DECODERS}
            cached = decoder.read_source(encoder_out)
            before = decoder.initial_state(cached, encoder_out)
        tokens = prev_output_tokens[:, -1]
        padding = tokens[:, None].eq(decoder.padding_idx) if self.padded else None
        logits, after = decoder.step(tokens, prev_output_tokens.shape[1] - 1, cached, before, padding=padding)
        log_probs = self.model.get_normalized_probs((logits, None), log_probs=True)
        return log_probs, as_tensors(cached, after)


def as_tensors(source: DecoderSource, state: Any) -> Tensors:
    """The source and the state of a decoder's step as named tensors."""
    constants = {CONSTANTS + name.removeprefix(LAYERS): x for name, x in flatten_state(source).items()}
    return constants | {STATE + name: x for name, x in flatten_state(state).items()}


def from_tensors(decoder: Any, tensors: Tensors) -> tuple[DecoderSource, Any]:
    """The inverse of :func:`as_tensors`."""
    constants, states = (
        {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
        for prefix in (CONSTANTS, STATE)
    )
    cached, state = [], []
    for number, layer in enumerate(decoder.layers):
        cached.append(layer.cached_type and unflatten_state(layer.cached_type, constants, f"{number}."))
        state.append(unflatten_state(layer.state_type, states, f"{number}."))
    padding, packed_padding = (Padding(constants.get(name)) for name in ("padding", "packed_padding"))
    return DecoderSource(padding, packed_padding, tuple(cached)), tuple(state)


def _unwrap_hub_interface(model: Any) -> Any:
    """``model``, or the one that fairseq's hub interface holds."""
    models = getattr(model, "models", [model])
    if len(models) != 1:
        raise UsageError(f"an ensemble of {len(models)} models: export each of its .models")
    return models[0]


def decoder_step(model: nn.Module) -> DecoderStepForExport:
    """A step without padding, except for block attention: without it, whether a block ends is fixed in its graph."""
    return DecoderStepForExport(model, padded=any(isinstance(x, BlockCausalAttention) for x in model.modules()))


class FirstStepGraph(nn.Module):
    """The encoder, and the decoder's step that reads the end-of-sentence symbol before the first token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.encode = EncoderForExport(model)
        self.decode = decoder_step(model)

    def forward(self, source: Tensor) -> tuple[Tensor, Tensors]:
        """``source (B, S)`` to the log-probabilities ``(B, V)`` of the first token, and the state."""
        return self.decode(torch.full_like(source[:, :1], EOS), self.encode(source), {})


class NextStepGraph(nn.Module):
    """A later step of the decoder, with the selection of rows before it and of candidates after it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.decode = decoder_step(model)

    def forward(
        self, tokens: Tensor, scores: Tensor, rows: Tensor, positions: Tensor, state: Tensors
    ) -> tuple[Tensor, Tensor, Tensor, Tensors]:
        """See :meth:`fairseq_luna.deployed.graphs.Graphs.step`; ``positions`` has as many elements as tokens so far."""
        sentences, beam = tokens.shape
        for name, x in state.items():
            if CONSTANT in name:  # or the graph computes with both sizes: a fifth more operators
                torch._check(x.shape[0] == sentences)
        state = {name: x if CONSTANT in name else x.index_select(0, rows) for name, x in state.items()}
        so_far = F.pad(tokens.reshape(-1, 1), (positions.shape[0], 0))
        log_probs, state = self.decode(so_far, {}, state)
        total = scores.reshape(-1, 1)
        # The best of each beam first, then of all beams: fewer passes over the vocabulary. One of them may be padding.
        count = 2 * beam + 1
        top_scores, top_tokens = log_probs.topk(count)
        top_scores = torch.where(top_tokens == PAD, -torch.inf, top_scores + total).view(sentences, -1)
        best, place = top_scores.topk(2 * beam)
        index = top_tokens.view(sentences, -1).gather(1, place) + place // count * log_probs.shape[1]
        ends = (log_probs[:, EOS : EOS + 1] + total).view(sentences, beam)
        return best, index, ends, {name: x for name, x in state.items() if CONSTANT not in name}

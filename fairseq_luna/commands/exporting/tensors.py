"""Encoders and decoder steps as modules whose inputs and outputs are tensors, for torch.export.

In fairseq the generation state is a dictionary that modules write into, and models leave out masks where nothing is
padded; a graph can express neither. Here the state is an argument and a result, as named tensors, and masks are kept,
or if asked left out, for any input. ``docs/translate.md`` says what can be exported and has an example.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...models.shared.source_rows import READ_BY_DECODERS
from ...modules.generation_state import GenerationState
from ...usage_error import UsageError

Tensors = dict[str, Tensor]


class EncoderForExport(nn.Module):
    """A model's encoder.

    Args:
        model: an encoder-decoder of this package, or the result of ``fairseq_luna.load`` or ``from_pretrained``.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = _single(model).encoder

    def forward(self, src_tokens: Tensor) -> Tensors:
        """Encode ``src_tokens (B, S)`` int64.

        Returns:
            What a decoder reads: ``encoder_out (S, B, C)``, ``encoder_padding_mask (B, S)``, True = padding, and for
            Luna ``packed_out (L, B, C)`` and ``packed_padding_mask (B, L)``.
        """
        with _IndependentOfData():
            out = self.encoder(src_tokens, src_tokens.ne(self.encoder.padding_idx).sum(1))
        return {name: out[name][0] for name in READ_BY_DECODERS if out.get(name)}


class DecoderStepForExport(nn.Module):
    """One step of a model's decoder, with its state as an argument and a result.

    The first step needs its own graph, because it reads the source and creates the state.

    Args:
        model: an encoder-decoder of this package, or the result of ``fairseq_luna.load`` or ``from_pretrained``.
        padded: whether the last words may be padding, which a beam search's are not; if not, the graph is smaller.
    """

    def __init__(self, model: Any, *, padded: bool = True) -> None:
        super().__init__()
        self.model = _single(model)
        self.padded = padded

    def forward(self, prev_output_tokens: Tensor, source: Tensors, state: Tensors) -> tuple[Tensor, Tensors]:
        """Compute the log-probabilities of the next word.

        Args:
            prev_output_tokens: ``(B, T)`` int64, all words so far; only the last is read, and T for its position.
            source: the result of :class:`EncoderForExport`, with the same rows as ``prev_output_tokens``; later steps
                do not read it and take an empty one too.
            state: of the previous step, empty at the first; the first axis of each tensor is B. A tensor with
                ``/constants/`` in its name depends on the source alone: it may have fewer rows, each of which as many
                consecutive rows of ``prev_output_tokens`` read.

        Returns:
            ``(B, V)``, and the state after this step.
        """
        modules = _stateful(self.model.decoder)
        incremental_state = _nested(state, modules)
        encoder_out: dict[str, list[Tensor]] = {name: [] for name in READ_BY_DECODERS} | {
            k: [v] for k, v in source.items()
        }
        if state and not source:
            encoder_out["encoder_out"] = [torch.empty(0)]
        decoder = self.model.decoder
        with _IndependentOfData(padded=self.padded), _any_position(decoder.embed_positions):
            out = decoder(prev_output_tokens, encoder_out=encoder_out, incremental_state=incremental_state)
        log_probs = self.model.get_normalized_probs(out, log_probs=True)
        return log_probs.squeeze(1), _flat(incremental_state, modules)


def _single(model: Any) -> Any:
    """``model``, or the one that fairseq's hub interface holds."""
    models = getattr(model, "models", [model])
    if len(models) != 1:
        raise UsageError(f"an ensemble of {len(models)} models: export each of its .models")
    return models[0]


class _IndependentOfData(TorchFunctionMode):
    """Avoids control flow that depends on data, and shapes as tensors, while a graph is recorded.

    ``if mask.any()`` is always true and ``lengths.min()`` is 0: the other branches are only faster. Shapes that
    fairseq's positional embedding reads as a tensor stay integers, which can be dynamic in a graph. The calls are in
    forward passes of fairseq, which have no argument for it: the other way is a copy of them.

    Args:
        padded: what ``mask.any()`` is.
    """

    def __init__(self, *, padded: bool = True) -> None:
        super().__init__()
        self.padded = padded

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.any and len(args) == 1:
            return torch.tensor(self.padded)
        if func is Tensor.min and len(args) == 1:
            return torch.tensor(0)
        if func is torch._shape_as_tensor:
            return args[0].shape
        return func(*args, **(kwargs or {}))


@contextmanager
def _any_position(embedding: Any) -> Iterator[None]:
    """Keeps the position of a step free in a graph: fairseq's ``int(...)`` of a learned one would fix it."""
    if not isinstance(embedding, LearnedPositionalEmbedding):
        yield
        return

    def newest(tokens: Tensor, incremental_state: Any = None) -> Tensor:
        position = tokens.new_full((1, 1), embedding.padding_idx + tokens.shape[1])
        return F.embedding(position, embedding.weight, embedding.padding_idx)

    embedding.forward = newest
    try:
        yield
    finally:
        del embedding.forward


def _stateful(decoder: nn.Module) -> dict[str, GenerationState]:
    """The modules with a generation state, by name."""
    return {name: module for name, module in decoder.named_modules() if isinstance(module, GenerationState)}


def _nested(state: Tensors, modules: dict[str, GenerationState]) -> dict[str, dict[str, Tensor | None]]:
    nested: dict[str, dict[str, Tensor | None]] = {}
    for place, tensor in state.items():
        module, kind, name = place.split("/")
        key = modules[module].state_key(kind)
        nested.setdefault(key, {})[name] = tensor
    return nested


def _flat(incremental_state: Any, modules: dict[str, GenerationState]) -> Tensors:
    return {
        f"{place}/{kind}/{name}": tensor
        for place, module in modules.items()
        for kind in ("constants", "state")
        for name, tensor in incremental_state.get(module.state_key(kind), {}).items()
        if torch.is_tensor(tensor)
    }

"""The buffers of a search: each token reads and writes the same memory."""

from typing import Any

import torch
from torch import Tensor

from ..modules.decoding_state import flatten_state, map_tensors, select_rows
from ..ops.padding import Padding
from .history import History
from .next_token import Beams, Limits, advance_beams, log_probabilities
from .search_settings import SearchSettings


class SearchState:
    """A search of B sentences in progress.

    Args:
        decoder: a :class:`.CausalDecoder`, whose ``step`` is called.
        settings: of the search.
        source: what the decoder reads of the sources, a row for each sentence.
        state: of the decoder, a row for each beam.
        beams: the hypotheses to extend.
        limits: of their lengths.
        sentences: ``(B,)`` int64, the place of each sentence in ``history``.
        history: where the tokens are stored.
    """

    def __init__(
        self,
        decoder: Any,
        settings: SearchSettings,
        *,
        source: Any,
        state: Any,
        beams: Beams,
        limits: Limits,
        sentences: Tensor,
        history: History,
    ) -> None:
        self.decoder, self.settings = decoder, settings
        self.source, self.state, self.beams = source, state, beams
        self.limits, self.sentences, self.history = limits, sentences, history

    def advance(self) -> None:
        """Extend all hypotheses by one token. Whatever changes is written in place, unless the state grows."""
        beams = self.beams
        position = beams.position.clone()
        # Values that layers derive from a mask belong to this token: a replayed graph has to compute them again.
        source = map_tensors(without_derived_values, self.source)
        state = select_rows(self.state, beams.rows)
        logits, state, attention = step_with_attention(
            self.decoder, self.settings, beams.tokens.reshape(-1), position, source, state
        )
        log_probs = log_probabilities(logits, beams, self.limits, self.settings)
        after, chosen = advance_beams(log_probs, beams, self.settings)
        self.history.write(position, self.sentences, after, chosen, attention)
        for buffer, value in zip(beams, after, strict=True):
            buffer.copy_(value)
        self.state = write_in_place(self.state, state)

    def unfinished_sentences(self) -> Tensor:
        """The places of the sentences that have fewer than K hypotheses: a look at the device."""
        return (self.beams.finished < self.settings.beam).nonzero()[:, 0]

    def select_sentences(self, places: Tensor, size: int) -> "SearchState":
        """The search of the sentences at these ``places``, filled up to ``size`` sentences whose search is over.

        ``limits`` and ``history`` stay shared.
        """
        beam, count = self.settings.beam, len(places)
        places = torch.cat([places, places.new_zeros(size - count)])
        rows = self.beams.rows.view(-1, beam)[places].reshape(-1)
        beams = Beams(
            tokens=self.beams.tokens[places],
            scores=self.beams.scores[places],
            ignored=self.beams.ignored[places],
            rows=torch.arange(size * beam, device=places.device),
            finished=self.beams.finished[places],
            position=self.beams.position.clone(),
        )
        beams.finished[count:] = beam
        sentences = self.sentences[places]
        sentences[count:] = self.history.unused_sentence
        return self.replace_tensors(
            source=select_rows(self.source, places),
            state=select_rows(self.state, rows),
            beams=beams,
            sentences=sentences,
        )

    def with_room(self, max_steps: int) -> "SearchState":
        """A search whose decoder's state has room for ``max_steps`` steps."""
        return self.replace_tensors(state=self.decoder.with_room(self.state, max_steps))

    def with_own_memory(self) -> "SearchState":
        """A copy that shares no tensor with this state, except the model's."""
        return self.replace_tensors(
            source=clone_tensors(self.source),
            state=clone_tensors(self.state),
            beams=clone_tensors(self.beams),
            limits=clone_tensors(self.limits),
            sentences=self.sentences.clone(),
            history=clone_tensors(self.history),
        )

    def replace_tensors(self, **tensors: Any) -> "SearchState":
        """A state with other ``tensors`` for these arguments."""
        names = "source", "state", "beams", "limits", "sentences", "history"
        return SearchState(self.decoder, self.settings, **{name: getattr(self, name) for name in names} | tensors)

    def load(self, other: "SearchState") -> None:
        """Continue the search of ``other``, which has the same :meth:`shapes`, in the memory of this state."""
        others = other.buffers()
        for name, buffer in self.buffers().items():
            buffer.copy_(others[name])

    def buffers(self) -> dict[str, Tensor]:
        """All tensors that differ from search to search, by name."""
        return flatten_state((self.source, self.state, self.beams, self.limits, self.sentences, self.history))

    def shapes(self) -> tuple[tuple[str, torch.Size], ...]:
        """The names and shapes of all buffers: states for which they are equal can share a recorded token."""
        return tuple((name, buffer.shape) for name, buffer in self.buffers().items())


def step_with_attention(
    decoder: Any, settings: SearchSettings, tokens: Tensor, position: Tensor, source: Any, state: Any
) -> tuple[Tensor, Any, Tensor | None]:
    """``decoder.step`` with cross-attention weights, if ``settings`` ask for them.

    Returns:
        Logits ``(B, V)``, the state after this step, and weights ``(B, S)`` or None.
    """
    if settings.weights_layer < 0:
        return *decoder.step(tokens, position, source, state), None
    output = decoder.step_features(
        tokens, position, source, state, padding=Padding(), weights_layer=settings.weights_layer
    )
    weights = output.weights[: settings.weights_heads].mean(dim=0)
    return decoder.output_layer(output.features).squeeze(1), output.state, weights.squeeze(1)


def clone_tensors(tensors: Any) -> Any:
    """``tensors`` in memory of their own."""

    def copy_of(x: Tensor | Padding) -> Tensor | Padding:
        if isinstance(x, Padding):
            return Padding(None if x.mask is None else x.mask.clone())
        return x.clone()

    return map_tensors(copy_of, tensors)


def without_derived_values(x: Tensor | Padding) -> Tensor | Padding:
    """A padding with the same mask, which keeps nothing yet; a tensor as it is."""
    return Padding(x.mask) if isinstance(x, Padding) else x


def write_in_place(buffers: Any, state: Any) -> Any:
    """``state`` in the memory of ``buffers``, where the shapes agree; a state that has grown stays where it is."""
    old, new = flatten_state(buffers), flatten_state(state)
    if {name: x.shape for name, x in old.items()} != {name: x.shape for name, x in new.items()}:
        return state
    for name, value in new.items():
        old[name].copy_(value)
    return buffers

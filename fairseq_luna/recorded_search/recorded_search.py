"""fairseq's beam search on states of fixed shapes; a token is recorded once for each shape and then replayed."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cuda_graph import Record
from ..modules.decoding_state import repeat_rows
from .history import History, Hypothesis
from .next_token import Limits, advance_beams, first_beams, log_probabilities
from .search_settings import SearchSettings
from .search_state import SearchState, step_with_attention

# Tokens between two synchronizations with the device, to see which sentences have ended.
TOKENS_BETWEEN_LOOKS = 8
# Size of the least-recently-used cache of recorded graphs, each with its own memory.
MOST_RECORDED = 16
# Tokens that a state which grows has room for at first; the room doubles when it is full.
FIRST_ROOM = 64
# Sources are padded to a multiple of this, so that batches share a recorded token.
SOURCE_MULTIPLE = 16


class RecordedSearch:
    """Beam search for one model, with the hypotheses, order and scores of fairseq's ``SequenceGenerator``.

    Args:
        generator: fairseq's ``SequenceGenerator`` for one model of this package; its options hold.
            :func:`.settings.unsupported_option` says which it must not have.
        record: how a token is recorded, such as :func:`..cuda_graph.record`; None: it is computed eagerly each time.
        tokens_between_syncs: tokens after which sentences that have ended are left out.
    """

    def __init__(
        self, generator: Any, *, record: Record | None = None, tokens_between_syncs: int = TOKENS_BETWEEN_LOOKS
    ) -> None:
        self.generator, self.record = generator, record
        self.settings = SearchSettings.of(generator)
        self.tokens_between_syncs = tokens_between_syncs
        # States by their shapes, each with the function that repeats its token.
        self.recorded: OrderedDict[Any, tuple[SearchState, Callable[[], None]]] = OrderedDict()

    @torch.no_grad()
    def generate(self, sample: Any, bos_token: int | None = None) -> list[list[Hypothesis]]:
        """The hypotheses for each sentence of the batch ``sample``, as ``generator.generate([model], sample)``.

        Args:
            sample: a batch with ``net_input`` as fairseq's tasks make it.
            bos_token: the token before the first; None: the end-of-sentence symbol.
        """
        generator, source = self.generator, sample["net_input"]["src_tokens"]
        longest = min(int(generator.max_len_a * source.shape[1] + generator.max_len_b), generator.max_len - 1)
        assert generator.min_len <= longest, "min_len cannot be larger than max_len, please adjust these!"
        state = self.after_first_token(sample["net_input"], longest, bos_token)
        advance, room = state.advance, FIRST_ROOM
        for token in range(1, longest + 1):
            if token == 1 or token % self.tokens_between_syncs == 0:
                places = state.unfinished_sentences()
                if len(places) == 0:
                    break
                size = self.size_for(len(places))
                if token == 1 or size < len(state.sentences):
                    state, advance = self.recorded_state(state.select_sentences(places, size))
            if token == room and self.record is not None:
                room *= 2
                state, advance = self.recorded_state(state.with_room(room))
            advance()
        return state.history.hypotheses(
            len(source),
            left_padding=self.left_padding(source),
            eos=self.settings.eos,
            normalize=generator.normalize_scores,
            length_penalty=generator.len_penalty,
        )

    def after_first_token(self, net_input: Any, longest: int, bos_token: int | None) -> SearchState:
        """The search of a batch after its first token, which is computed with one beam for each sentence."""
        source_tokens, decoder = net_input["src_tokens"], self.generator.model.single_model.decoder
        sentences, device = len(source_tokens), source_tokens.device
        net_input = pad_left(net_input, self.left_padding(source_tokens), self.settings.pad)
        [encoder_out] = self.generator.model.forward_encoder(net_input)
        source = decoder.read_source(encoder_out, weights_layer=self.settings.weights_layer)
        first = source_tokens.new_full((sentences,), self.settings.eos if bos_token is None else bos_token)
        beams = first_beams(sentences, self.settings, device)
        state = decoder.initial_state(source, encoder_out)
        logits, state, attention = step_with_attention(decoder, self.settings, first, beams.position, source, state)
        limits = Limits(*(torch.tensor([length], device=device) for length in (longest, self.generator.min_len)))
        logits = logits.repeat_interleave(self.settings.beam, dim=0)
        log_probs = log_probabilities(logits, beams, limits, self.settings)
        after, chosen = advance_beams(log_probs, beams, self.settings)
        tokens, places = self.capacity_for(longest + 1), torch.arange(sentences, device=device)
        state = repeat_rows(state, self.settings.beam)
        if self.record is not None:
            state = decoder.with_room(state, FIRST_ROOM)
        history = History.empty(tokens, self.size_for(sentences), self.settings.beam, device)
        if attention is not None:
            history = history.with_attention(attention.shape[1])
            attention = attention.repeat_interleave(self.settings.beam, dim=0)
        history.write(beams.position, places, after, chosen, attention)
        return SearchState(
            decoder,
            self.settings,
            source=source,
            state=state,
            beams=after,
            limits=limits,
            sentences=places,
            history=history,
        )

    def recorded_state(self, state: SearchState) -> tuple[SearchState, Callable[[], None]]:
        """A state with the search of ``state``, and the function that advances it."""
        if self.record is None:
            return state, state.advance
        key = state.shapes()
        if key not in self.recorded:
            recorded_copy = state.with_own_memory()
            self.recorded[key] = recorded_copy, self.record(recorded_copy.advance, partial(recorded_copy.load, state))
            if len(self.recorded) > MOST_RECORDED:
                self.recorded.popitem(last=False)
        self.recorded.move_to_end(key)
        recorded_copy, advance = self.recorded[key]
        recorded_copy.load(state)
        return recorded_copy, advance

    def left_padding(self, source_tokens: Tensor) -> int:
        """The number of tokens that are put before sources ``(B, S)``: recorded ones have a multiple of tokens."""
        return 0 if self.record is None else -source_tokens.shape[1] % SOURCE_MULTIPLE

    def size_for(self, sentences: int) -> int:
        """The batch size used for ``sentences``: the next power of two where steps are recorded."""
        return sentences if self.record is None else 1 << (sentences - 1).bit_length()

    def capacity_for(self, tokens: int) -> int:
        """The number of tokens that a history has room for."""
        return tokens if self.record is None else 1 << (tokens - 1).bit_length()


def pad_left(net_input: Mapping[str, Any], count: int, pad: int) -> dict[str, Any]:
    """``net_input`` with ``count`` tokens ``pad`` before its ``src_tokens (B, S)``."""
    return {**net_input, "src_tokens": F.pad(net_input["src_tokens"], (count, 0), value=pad)}

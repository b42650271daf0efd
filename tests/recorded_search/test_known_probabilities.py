"""Both searches on a model whose probabilities are written down, so that the hypotheses are known without a search.

The options are taken from the cases in fairseq's own tests of its generator.
"""

import math
import sys
from argparse import Namespace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, FairseqIncrementalDecoder
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

import operator_tape
from fairseq_luna.recorded_search import sequence_generator
from support import EOS, PAD

DICTIONARY = Dictionary()
A, B = (DICTIONARY.add_symbol(word) for word in "ab")
# Of each sentence the probabilities after a prefix; after any other prefix the sentence ends.
SENTENCES: list[dict[tuple[int, ...], dict[int, float]]] = [
    {
        (): {A: 0.8, B: 0.2},
        (A,): {EOS: 1.0},
        (B,): {A: 0.95, B: 0.05},
        (B, A): {B: 0.9, A: 0.1},
        (B, B): {EOS: 0.7, A: 0.3},
        (B, A, A): {EOS: 1.0},
        (B, A, B): {EOS: 1.0},
    },
    {
        (): {A: 0.6, B: 0.4},
        (A,): {B: 0.5, A: 0.3, EOS: 0.2},
        (B,): {B: 0.85, EOS: 0.15},
        (A, B): {EOS: 0.55, A: 0.45},
        (B, B): {EOS: 0.02, B: 0.98},
        (B, B, B): {EOS: 0.1, A: 0.5, B: 0.4},
    },
]
SHORT, LONG = ((A,), (0.8, 1.0)), ((B, A, B), (0.2, 0.95, 0.9, 1.0))
ENDS, GOES_ON = ((A, B), (0.6, 0.5, 0.55)), ((A, B, A), (0.6, 0.5, 0.45, 1.0))
# Of each case the options, and of both sentences the tokens and probabilities of the two hypotheses, the best first.
CASES: dict[str, tuple[dict[str, Any], list[list[Any]]]] = {
    "normalized": ({}, [[SHORT, LONG], [GOES_ON, ENDS]]),
    "sums": ({"normalize_scores": False}, [[SHORT, LONG], [ENDS, GOES_ON]]),
    "short": ({"len_penalty": 0.3}, [[SHORT, LONG], [ENDS, GOES_ON]]),
    "long": ({"len_penalty": 5.0}, [[LONG, SHORT], [GOES_ON, ENDS]]),
    "limit": ({"max_len_b": 2}, [[SHORT, ((B, B), (0.2, 0.05, 0.7))], [ENDS, ((B, B), (0.4, 0.85, 0.02))]]),
    "minimum": ({"min_len": 2}, [[LONG, ((B, A, A), (0.2, 0.95, 0.1, 1.0))], [GOES_ON, ENDS]]),
}


EVEN = {A: 0.5, B: 0.5}
TIED: list[dict[tuple[int, ...], dict[int, float]]] = [{(): EVEN, (A,): EVEN, (B,): EVEN}] * 2


class Place(NamedTuple):
    """The state of a generation: the row of the tables for what has been generated."""

    row: Tensor  # (B,)


class Source(NamedTuple):
    row: Tensor  # (B,), of the sentence before its first token
    weights: Tensor  # (B, S), of a cross-attention


class Encoder(FairseqEncoder):
    """Reads the number of a sentence from its first token, and repeats each token ``times`` times."""

    def __init__(self, times: int, needs_more_input: bool) -> None:
        super().__init__(DICTIONARY)
        self.times, self.needs_more_input = times, needs_more_input

    def forward(self, src_tokens: Tensor, src_lengths: Any = None, **more: Any) -> dict[str, Tensor]:
        assert ("more" in more) == self.needs_more_input
        first = src_tokens.gather(1, src_tokens.ne(PAD).long().argmax(1, keepdim=True))[:, 0]
        weights = src_tokens.ne(PAD).repeat_interleave(self.times, dim=1)
        return {"row": first - A, "weights": weights / weights.sum(1, keepdim=True)}

    def reorder_encoder_out(self, encoder_out: dict[str, Tensor], new_order: Tensor) -> dict[str, Tensor]:
        return {name: x.index_select(0, new_order) for name, x in encoder_out.items()}


class Decoder(FairseqIncrementalDecoder):
    """Returns the written probabilities, to fairseq's search by ``forward`` and to the recorded one by ``step``."""

    def __init__(self) -> None:
        super().__init__(DICTIONARY)
        places = [(number, prefix) for number in range(len(SENTENCES)) for prefix in SENTENCES[number]]
        places.sort(key=lambda place: len(place[1]))  # the rows of the empty prefixes are the sentences' numbers
        ended = len(places)
        log_probs = torch.full((ended + 1, len(DICTIONARY)), -math.inf)
        log_probs[ended, EOS] = 0
        self.following = torch.full((ended + 1, len(DICTIONARY)), ended)
        for row, (number, prefix) in enumerate(places):
            for token, probability in SENTENCES[number][prefix].items():
                log_probs[row, token] = math.log(probability)
                if (number, (*prefix, token)) in places:
                    self.following[row, token] = places.index((number, (*prefix, token)))
        self.log_probs = nn.Parameter(log_probs, requires_grad=False)

    def forward(
        self, prev_output_tokens: Tensor, encoder_out: Any = None, incremental_state: Any = None, **_: Any
    ) -> tuple[Tensor, Any]:
        row = encoder_out["row"]
        for token in prev_output_tokens[:, 1:].t():
            row = self.following[row, token]
        return self.log_probs[row][:, None], {"attn": [encoder_out["weights"][:, None]]}

    def max_positions(self) -> int:
        return 100

    def requested_weights(self, *_: Any) -> tuple[int, None]:
        return 0, None

    def read_source(self, encoder_out: Any, *, weights_layer: int) -> Source:
        return Source(encoder_out["row"], encoder_out["weights"])

    def initial_state(self, source: Source, encoder_out: Any) -> Place:
        return Place(source.row)

    def with_room(self, state: Place, tokens: int) -> Place:
        return state

    def step_features(self, tokens: Tensor, position: Tensor, source: Source, state: Place, **_: Any) -> Namespace:
        row = torch.where(position == 0, state.row, self.following[state.row, tokens])
        weights = source.weights.repeat_interleave(len(tokens) // len(source.weights), dim=0)
        return Namespace(features=self.log_probs[row][:, None], state=Place(row), weights=weights[None, :, None])

    def output_layer(self, features: Tensor) -> Tensor:
        return features


SEARCHES = {
    "fairseq": ("fairseq", None),
    "recorded": ("recorded", None),
    "replayed": ("recorded", operator_tape.record),
}


@pytest.fixture(params=SEARCHES.values(), ids=SEARCHES)
def hypotheses(request, monkeypatch):
    """A function that translates both sentences, of three tokens, with these options of fairseq's generator."""
    search, record = request.param
    monkeypatch.setattr(sequence_generator, "search_recorder", lambda device: record)
    used: list[str] = []
    generate = sequence_generator.RecordedSearch.generate
    monkeypatch.setattr(
        sequence_generator.RecordedSearch, "generate", lambda *args: used.append("recorded") or generate(*args)
    )

    def generated(*, times: int = 1, more: dict[str, Tensor] | None = None, **options: Any) -> Any:
        model = FairseqEncoderDecoderModel(Encoder(times, more is not None), Decoder())
        model.cfg = Namespace(search=search)
        source = torch.tensor([[A, B, EOS], [B, A, EOS]])
        batch = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([3, 3]), **(more or {})}}
        generator = SequenceGenerator([model], DICTIONARY, **{"beam_size": 2, **options})
        generator.generate([model], batch)  # the first batch, which a GPU decodes by both searches
        found = generator.generate([model], batch)
        assert used == ([] if search == "fairseq" else ["recorded"] * 2)
        return found

    return generated


def assert_hypothesis(found: Any, tokens: tuple[int, ...], probabilities: tuple[float, ...], score: float) -> None:
    assert found["tokens"].tolist() == [*tokens, EOS]
    torch.testing.assert_close(found["positional_scores"], torch.tensor(probabilities).log())
    assert float(found["score"]) == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize(("options", "expected"), CASES.values(), ids=CASES)
def test_the_hypotheses_are_those_of_the_written_probabilities(options, expected, hypotheses):
    found = hypotheses(**options)
    for sentence, wanted in zip(found, expected, strict=True):
        scores = []
        for hypothesis, (tokens, probabilities) in zip(sentence, wanted, strict=True):
            total = sum(map(math.log, probabilities))
            power = options.get("len_penalty", 1.0) if options.get("normalize_scores", True) else 0
            scores.append(total / len(probabilities) ** power)
            assert_hypothesis(hypothesis, tokens, probabilities, scores[-1])
        assert all(better >= worse for better, worse in pairwise(scores))


def test_tied_hypotheses_have_the_scores_of_fairseq(hypotheses, monkeypatch):
    """Which of the tied prefixes are kept is left to topk, so that their tokens may differ."""
    monkeypatch.setattr(sys.modules[__name__], "SENTENCES", TIED)
    for sentence in hypotheses():
        prefixes = {tuple(hypothesis["tokens"].tolist()[:-1]) for hypothesis in sentence}
        assert len(prefixes) == 2 and prefixes <= {(A, A), (A, B), (B, A), (B, B)}
        for hypothesis in sentence:
            assert float(hypothesis["score"]) == pytest.approx(2 * math.log(0.5) / 3)


def test_an_encoder_may_return_another_number_of_steps_than_it_reads(hypotheses):
    for hypothesis in chain(*hypotheses(times=2)):
        attention = hypothesis["attention"]
        assert attention.shape[1] == len(hypothesis["tokens"])
        torch.testing.assert_close(attention.sum(0), torch.ones(attention.shape[1]))


def test_further_inputs_reach_the_encoder(hypotheses):
    found = hypotheses(more={"more": torch.zeros(2, 3)})
    assert found[0][0]["tokens"].tolist() == [A, EOS]

"""The tokens, scores and parents of all beams of a search, and the hypotheses that are traced back through them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .next_token import BeamChoices, Beams

Hypothesis = dict[str, Any]


class History(NamedTuple):
    """The decisions of each token of a search: T tokens of B sentences with K beams, each tensor ``(T, B + 1, K)``.

    The last row of the second dimension is for sentences that only fill up a batch. S is the number of source tokens.
    """

    tokens: Tensor  # int64, the token that each beam was continued with
    scores: Tensor  # fp32, the sum of its log-probabilities
    parents: Tensor  # int64, the beam that it continues
    ended: Tensor  # bool, which candidates are hypotheses that ended
    end_scores: Tensor  # fp32
    end_beams: Tensor  # int64, the beam that they continue
    attention: Tensor | None = None  # (T, B + 1, K, S) fp32, cross-attention weights of the beams that are continued

    @classmethod
    def empty(cls, tokens: int, sentences: int, beam: int, device: torch.device) -> "History":
        """A history in which nothing has ended."""
        shape = tokens, sentences + 1, beam
        return cls(
            tokens=torch.zeros(shape, dtype=torch.int64, device=device),
            scores=torch.zeros(shape, device=device),
            parents=torch.zeros(shape, dtype=torch.int64, device=device),
            ended=torch.zeros(shape, dtype=torch.bool, device=device),
            end_scores=torch.zeros(shape, device=device),
            end_beams=torch.zeros(shape, dtype=torch.int64, device=device),
        )

    def with_attention(self, source_tokens: int) -> "History":
        """A history that also stores cross-attention weights, for sources of ``source_tokens`` tokens."""
        return self._replace(attention=self.scores.new_zeros(*self.scores.shape, source_tokens))

    @property
    def unused_sentence(self) -> int:
        """The place that is written for sentences which only fill up a batch."""
        return self.tokens.shape[1] - 1

    def write(
        self, position: Tensor, sentences: Tensor, beams: Beams, chosen: BeamChoices, attention: Tensor | None = None
    ) -> None:
        """Store one token, in place: at ``position (1,)``, for these ``sentences (B,)``.

        ``attention`` has the weights ``(B * K, S)`` of the step whose candidates are ``chosen``.
        """
        for column, value in zip(self, (beams.tokens, beams.scores, *chosen), strict=False):  # all but the attention
            assert column is not None
            column[position, sentences] = value
        if self.attention is not None and attention is not None:
            self.attention[position, sentences] = attention.view(*beams.tokens.shape, -1).to(self.attention.dtype)

    def hypotheses(
        self, sentences: int, *, left_padding: int, eos: int, normalize: bool, length_penalty: float
    ) -> list[list[Hypothesis]]:
        """The hypotheses of the first ``sentences`` as fairseq's generator returns them, the best first.

        Args:
            sentences: their number.
            left_padding: tokens that the search put before the sources, whose weights are left out.
            eos: the token that ends them.
            normalize, length_penalty: a score is divided by its length to this power.
        """
        device = self.tokens.device
        decisions = (column[:, :sentences].cpu() for column in self._replace(attention=None) if column is not None)
        history = History(*decisions)
        ends, places_of_sentences, beams = history.ended.nonzero(as_tuple=True)
        tokens, totals, parents = history.trace_back(ends, places_of_sentences, beams, eos)
        steps = totals.clone()
        steps[:, 1:] -= totals[:, :-1]
        by_sentence: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        for row, (end, sentence) in enumerate(zip(ends.tolist(), places_of_sentences.tolist(), strict=True)):
            score = totals[row, end].clone()
            if normalize:
                score /= (end + 1) ** length_penalty
            by_sentence[sentence].append(
                {
                    "tokens": tokens[row, : end + 1].to(device),
                    "score": score.to(device),
                    "attention": self.attention_of(sentence, parents[row, : end + 1], left_padding),
                    "alignment": torch.empty(0),
                    "positional_scores": steps[row, : end + 1].to(device),
                }
            )
        return [best_first(hypotheses) for hypotheses in by_sentence]

    def attention_of(self, sentence: int, parents: Tensor, left_padding: int) -> Tensor:
        """The weights ``(S, T)`` of a hypothesis whose tokens continue the beams ``parents (T,)``.

        Without :attr:`attention` the result is empty.
        """
        if self.attention is None:
            return torch.empty(0)
        steps = torch.arange(len(parents), device=self.attention.device)
        return self.attention[steps, sentence, parents.to(steps.device), left_padding:].t()

    def trace_back(self, ends: Tensor, sentences: Tensor, places: Tensor, eos: int) -> tuple[Tensor, Tensor, Tensor]:
        """The N hypotheses that end at token ``ends`` of ``sentences``.

        Returns:
            Their tokens, total scores, and the beams that the tokens continue, each ``(N, T)``.
        """
        rows, steps = torch.arange(len(ends)), len(self.tokens)
        tokens = torch.full((len(ends), steps), eos)
        totals = torch.zeros(len(ends), steps)
        totals[rows, ends] = self.end_scores[ends, sentences, places]
        beams = self.end_beams[ends, sentences, places]
        parents = torch.zeros_like(tokens)
        parents[rows, ends] = beams
        for step in range(steps - 2, -1, -1):
            longer = (ends > step).nonzero()[:, 0]
            at = sentences[longer], beams[longer]
            tokens[longer, step], totals[longer, step] = self.tokens[step][at], self.scores[step][at]
            beams[longer] = parents[longer, step] = self.parents[step][at]
        return tokens, totals, parents


def best_first(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Sorted as fairseq sorts them, so that equal scores are in its order."""
    scores = torch.tensor([float(hypothesis["score"]) for hypothesis in hypotheses])
    return [hypotheses[place] for place in torch.sort(scores, descending=True)[1]]

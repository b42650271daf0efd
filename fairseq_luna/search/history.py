"""The tokens, scores and parents of all beams of a search, and the hypotheses that are traced back through them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .next_token import Beams, Chosen

Hypothesis = dict[str, Any]


class History(NamedTuple):
    """The decisions of each token of a search: T tokens of B sentences with K beams, each tensor ``(T, B + 1, K)``.

    The last row of the second dimension is for sentences that only fill up a batch.
    """

    tokens: Tensor  # int64, the token that each beam was continued with
    scores: Tensor  # fp32, the sum of its log-probabilities
    parents: Tensor  # int64, the beam that it continues
    ended: Tensor  # bool, which candidates are hypotheses that ended
    end_scores: Tensor  # fp32
    end_beams: Tensor  # int64, the beam that they continue

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

    @property
    def unused_sentence(self) -> int:
        """The place that is written for sentences which only fill up a batch."""
        return self.tokens.shape[1] - 1

    def write(self, position: Tensor, sentences: Tensor, beams: Beams, chosen: Chosen) -> None:
        """Store one token, in place: at ``position (1,)``, for these ``sentences (B,)``."""
        values = (beams.tokens, beams.scores, *chosen)
        for column, value in zip(self, values, strict=True):
            column[position, sentences] = value

    def hypotheses(self, sentences: int, *, eos: int, normalize: bool, length_penalty: float) -> list[list[Hypothesis]]:
        """The hypotheses of the first ``sentences`` as fairseq's generator returns them, the best first.

        Args:
            sentences: their number.
            eos: the token that ends them.
            normalize, length_penalty: a score is divided by its length to this power.
        """
        device = self.tokens.device
        history = History(*(column[:, :sentences].cpu() for column in self))
        ends, places_of_sentences, beams = history.ended.nonzero(as_tuple=True)
        tokens, totals = history.traced_back(ends, places_of_sentences, beams, eos)
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
                    "attention": torch.empty(0),
                    "alignment": torch.empty(0),
                    "positional_scores": steps[row, : end + 1].to(device),
                }
            )
        return [best_first(hypotheses) for hypotheses in by_sentence]

    def traced_back(self, ends: Tensor, sentences: Tensor, places: Tensor, eos: int) -> tuple[Tensor, Tensor]:
        """Tokens and total scores ``(N, T)`` of the N hypotheses that end at token ``ends`` of ``sentences``."""
        rows, steps = torch.arange(len(ends)), len(self.tokens)
        tokens = torch.full((len(ends), steps), eos)
        totals = torch.zeros(len(ends), steps)
        totals[rows, ends] = self.end_scores[ends, sentences, places]
        beams = self.end_beams[ends, sentences, places]
        for step in range(steps - 2, -1, -1):
            longer = (ends > step).nonzero()[:, 0]
            at = sentences[longer], beams[longer]
            tokens[longer, step], totals[longer, step] = self.tokens[step][at], self.scores[step][at]
            beams[longer] = self.parents[step][at]
        return tokens, totals


def best_first(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Sorted as fairseq sorts them, so that equal scores are in its order."""
    scores = torch.tensor([float(hypothesis["score"]) for hypothesis in hypotheses])
    return [hypotheses[place] for place in torch.sort(scores, descending=True)[1]]

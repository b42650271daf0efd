"""One token of a beam search: from log-probabilities to the hypotheses that go on and the hypotheses that end.

Only tensors of fixed shapes go in and come out, and nothing is read from the device. B is the number of sentences, K
the beam, V the vocabulary. Candidates, their order and their scores equal fairseq's ``SequenceGenerator``.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .search_settings import SearchSettings


class Beams(NamedTuple):
    """The hypotheses that a search extends."""

    tokens: Tensor  # (B, K) int64, the newest token of each
    scores: Tensor  # (B, K) fp32, the sum of the log-probabilities of each
    ignored: Tensor  # (B, K) bool, fairseq's cands_to_ignore: places whose hypotheses must not end
    rows: Tensor  # (B * K,) int64, the row of the decoder's state that each continues
    finished: Tensor  # (B,) int64, the number of hypotheses that have ended
    position: Tensor  # (1,) int64, of the newest tokens, from 0 for the token before the first


class Limits(NamedTuple):
    """The lengths of translations, without the end-of-sentence symbol."""

    longest: Tensor  # (1,) int64
    shortest: Tensor  # (1,) int64


class BeamChoices(NamedTuple):
    """The decisions of one token for a batch."""

    parents: Tensor  # (B, K) int64, the beam that each hypothesis continues
    ended: Tensor  # (B, K) bool, which of the best K candidates are hypotheses that end here
    end_scores: Tensor  # (B, K) fp32, their scores
    end_beams: Tensor  # (B, K) int64, the beams that they continue


def first_beams(sentences: int, settings: SearchSettings, device: torch.device) -> Beams:
    """The beams before the first token: all but the first of each sentence have no candidates."""
    shape = sentences, settings.beam
    scores = torch.full(shape, -torch.inf, device=device)
    scores[:, 0] = 0
    return Beams(
        tokens=torch.full(shape, settings.eos, device=device),
        scores=scores,
        ignored=torch.zeros(shape, dtype=torch.bool, device=device),
        rows=torch.arange(sentences * settings.beam, device=device),
        finished=torch.zeros(sentences, dtype=torch.int64, device=device),
        position=torch.zeros(1, dtype=torch.int64, device=device),
    )


def log_probabilities(logits: Tensor, beams: Beams, limits: Limits, settings: SearchSettings) -> Tensor:
    """The log-probabilities ``(B * K, V)`` of the next tokens, with -inf for tokens that cannot follow.

    Args:
        logits: ``(B * K, V)``.
        beams, limits, settings: of the search.
    """
    if settings.temperature != 1:
        logits = logits / settings.temperature
    log_probs = F.log_softmax(logits, dim=-1, dtype=torch.float32)
    token = torch.arange(logits.shape[1], device=logits.device)
    ends = token == settings.eos
    excluded = token == settings.pad
    excluded = excluded | (~ends & (beams.position >= limits.longest))
    excluded = excluded | (ends & (beams.position < limits.shortest))
    if settings.unk_penalty:
        log_probs = log_probs - settings.unk_penalty * (token == settings.unk)
    return torch.where(excluded | log_probs.isnan(), -torch.inf, log_probs)


def advance_beams(log_probs: Tensor, beams: Beams, settings: SearchSettings) -> tuple[Beams, BeamChoices]:
    """Select the continuations of ``beams`` by ``log_probs (B * K, V)``."""
    (sentences, beam), vocabulary = beams.scores.shape, log_probs.shape[1]
    # The best 2 K of each beam first, then of all beams of a sentence: fewer passes over the vocabulary.
    each = min(2 * beam, vocabulary)
    best_of_beam, token_of_beam = (log_probs + beams.scores.reshape(-1, 1)).topk(each)
    scores, place = best_of_beam.view(sentences, -1).topk(2 * beam)
    tokens = token_of_beam.view(sentences, -1).gather(1, place)
    parents = torch.div(place, each, rounding_mode="floor")

    ends = (tokens == settings.eos) & (scores != -torch.inf)
    accepted = ends[:, :beam] & ~beams.ignored
    # No more than K hypotheses of a sentence are kept: of hypotheses that end at the same token, the first.
    ended = accepted & (accepted.long().cumsum(1) + beams.finished[:, None] <= beam)

    # The first K candidates that do not end go on. Where they are too few, others fill the beam and are ignored.
    leaves = torch.cat([beams.ignored | accepted, ends[:, beam:]], dim=1)
    order = leaves.long() * (2 * beam) + torch.arange(2 * beam, device=leaves.device)
    key, chosen = order.topk(beam, largest=False, sorted=True)
    going_on = parents.gather(1, chosen)
    first_row = torch.arange(sentences, device=leaves.device)[:, None] * beam
    after = Beams(
        tokens=tokens.gather(1, chosen),
        scores=scores.gather(1, chosen),
        ignored=key >= 2 * beam,
        rows=(going_on + first_row).reshape(-1),
        finished=beams.finished + ended.sum(1),
        position=beams.position + 1,
    )
    return after, BeamChoices(going_on, ended, scores[:, :beam], parents[:, :beam])

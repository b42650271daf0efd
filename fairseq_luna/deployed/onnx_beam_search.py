"""Beam search over an exported model, as fairseq's generator does it: the same candidates, scores and order."""

from typing import NamedTuple

import numpy as np

from .graphs import EOS, PAD, Array, DecoderState, Graphs


class Hypothesis(NamedTuple):
    """Tokens of a translation, the end-of-sentence symbol included, and log-probability / length ** lenpen."""

    tokens: list[int]
    score: float


def beam_search(
    graphs: Graphs, source: Array, *, beam: int, lenpen: float, longest: int, shortest: int = 1
) -> list[list[Hypothesis]]:
    """Translate a batch.

    Args:
        graphs: the model.
        source: ``(B, S)`` int64, each row ending with the end-of-sentence symbol, padded at the right.
        beam: hypotheses K that are kept for each sentence.
        lenpen: the power of the length that a score is divided by.
        longest, shortest: tokens of a translation at most and at least, without the end-of-sentence symbol.

    Returns:
        K hypotheses for each sentence, the best first; fewer only if ``longest`` ends the search.
    """
    sentences = np.arange(len(source))
    hypotheses_of_sentences: list[list[Hypothesis]] = [[] for _ in sentences]
    state, scores, tokens, beams = first_candidates(graphs, source, beam)
    history = np.zeros((len(source), beam, longest + 1), dtype=np.int64)
    ignored = np.zeros((len(source), beam), dtype=bool)
    for length in range(longest + 1):
        ends = (tokens == EOS) & np.isfinite(scores)
        ends[:, :beam] &= ~ignored
        for row, place in np.argwhere(ends[:, :beam]) if length >= shortest else ():
            hypotheses = hypotheses_of_sentences[sentences[row]]
            if len(hypotheses) < beam:
                ended = [*history[row, beams[row, place], :length].tolist(), EOS]
                hypotheses.append(Hypothesis(ended, float(scores[row, place]) / len(ended) ** lenpen))
        going_on = np.flatnonzero([len(hypotheses_of_sentences[sentence]) < beam for sentence in sentences])
        if length == longest or not len(going_on):
            break
        if len(going_on) < len(sentences):
            state.keep_sentences(going_on)
            sentences, ends, ignored = sentences[going_on], ends[going_on], ignored[going_on]
            scores, tokens, beams, history = (x[going_on] for x in (scores, tokens, beams, history))
        # The first candidates that do not end go on. Where they are too few, others fill the beam and are ignored.
        ends[:, :beam] |= ignored
        chosen = np.argsort(ends, axis=1, kind="stable")[:, :beam]
        ignored, scores, tokens, beams = (take_along_beams(x, chosen) for x in (ends, scores, tokens, beams))
        history = take_along_beams(history, beams)
        history[:, :, length] = tokens
        rows = going_on[:, None] * (beam if length else 1) + beams
        scores, tokens, beams = candidates(graphs, state, tokens, scores, rows, length + 1, last=length + 1 == longest)
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in hypotheses_of_sentences]


def first_candidates(graphs: Graphs, source: Array, beam: int) -> tuple[DecoderState, Array, Array, Array]:
    """The state after the first step, and ``(B, 2 K)`` scores, tokens and beams of the candidates."""
    log_probs, state = graphs.start(source)
    log_probs = np.where(np.arange(graphs.vocabulary_size) == PAD, -np.inf, log_probs)
    tokens = np.argpartition(-log_probs, 2 * beam, axis=1)[:, : 2 * beam]
    tokens = take_along_beams(tokens, np.argsort(-take_along_beams(log_probs, tokens), axis=1, kind="stable"))
    return state, take_along_beams(log_probs, tokens), tokens, np.zeros_like(tokens)


def candidates(
    graphs: Graphs, state: DecoderState, tokens: Array, scores: Array, rows: Array, length: int, *, last: bool
) -> tuple[Array, Array, Array]:
    """The ``(B, 2 K)`` best continuations of ``tokens (B, K)``; of the ``last`` ones each beam's end.

    ``rows (B, K)``: rows of the state.
    """
    best, index, ends = graphs.step(state, tokens, scores, rows, length)
    if last:
        beams = np.argsort(-ends, axis=1, kind="stable")
        return take_along_beams(ends, beams), np.full_like(beams, EOS), beams
    return best, index % graphs.vocabulary_size, index // graphs.vocabulary_size


def take_along_beams(x: Array, places: Array) -> Array:
    """``x[b, places[b, k]]`` for every b and k; quicker than numpy's take_along_axis."""
    return x[np.arange(len(x))[:, None], places]

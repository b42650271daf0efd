"""Beam search over an exported model, as fairseq's generator does it: the same candidates, scores and order."""

from typing import NamedTuple

import numpy as np

from .graphs import EOS, PAD, Array, Graphs, State


class Hypothesis(NamedTuple):
    """Words of a translation, the end-of-sentence symbol included, and log-probability / length ** lenpen."""

    words: list[int]
    score: float


def beam_search(
    graphs: Graphs, source: Array, *, beam: int, lenpen: float, longest: int, shortest: int = 1
) -> list[list[Hypothesis]]:
    """Translate a batch.

    Args:
        graphs: the model.
        source: ``(B, S)`` int64, each row ending with the end mark, padded at the right.
        beam: hypotheses K that are kept for each sentence.
        lenpen: the power of the length that a score is divided by.
        longest, shortest: words of a translation at most and at least, without the end mark.

    Returns:
        K hypotheses for each sentence, the best first; fewer only if ``longest`` ends the search.
    """
    sentences = np.arange(len(source))
    found: list[list[Hypothesis]] = [[] for _ in sentences]
    state, scores, words, beams = first_candidates(graphs, source, beam)
    history = np.zeros((len(source), beam, longest + 1), dtype=np.int64)
    ignored = np.zeros((len(source), beam), dtype=bool)
    for length in range(longest + 1):
        ends = (words == EOS) & np.isfinite(scores)
        ends[:, :beam] &= ~ignored
        for row, place in np.argwhere(ends[:, :beam]) if length >= shortest else ():
            hypotheses = found[sentences[row]]
            if len(hypotheses) < beam:
                ended = [*history[row, beams[row, place], :length].tolist(), EOS]
                hypotheses.append(Hypothesis(ended, float(scores[row, place]) / len(ended) ** lenpen))
        going_on = np.flatnonzero([len(found[sentence]) < beam for sentence in sentences])
        if length == longest or not len(going_on):
            break
        if len(going_on) < len(sentences):
            state.keep_sentences(going_on)
            sentences, ends, ignored = sentences[going_on], ends[going_on], ignored[going_on]
            scores, words, beams, history = (x[going_on] for x in (scores, words, beams, history))
        # The first candidates that do not end go on. Where they are too few, others fill the beam and are ignored.
        ends[:, :beam] |= ignored
        chosen = np.argsort(ends, axis=1, kind="stable")[:, :beam]
        ignored, scores, words, beams = (picked(x, chosen) for x in (ends, scores, words, beams))
        history = picked(history, beams)
        history[:, :, length] = words
        rows = going_on[:, None] * (beam if length else 1) + beams
        scores, words, beams = candidates(graphs, state, words, scores, rows, length + 1, last=length + 1 == longest)
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in found]


def first_candidates(graphs: Graphs, source: Array, beam: int) -> tuple[State, Array, Array, Array]:
    """The state after the first step, and ``(B, 2 K)`` scores, words and beams of the candidates."""
    log_probs, state = graphs.start(source)
    log_probs = np.where(np.arange(graphs.words) == PAD, -np.inf, log_probs)
    words = np.argpartition(-log_probs, 2 * beam, axis=1)[:, : 2 * beam]
    words = picked(words, np.argsort(-picked(log_probs, words), axis=1, kind="stable"))
    return state, picked(log_probs, words), words, np.zeros_like(words)


def candidates(
    graphs: Graphs, state: State, words: Array, scores: Array, rows: Array, length: int, *, last: bool
) -> tuple[Array, Array, Array]:
    """The ``(B, 2 K)`` best continuations of ``words (B, K)``; of the ``last`` ones each beam's end.

    ``rows (B, K)``: rows of the state.
    """
    best, index, ends = graphs.step(state, words, scores, rows, length)
    if last:
        beams = np.argsort(-ends, axis=1, kind="stable")
        return picked(ends, beams), np.full_like(beams, EOS), beams
    return best, index % graphs.words, index // graphs.words


def picked(x: Array, places: Array) -> Array:
    """``x[b, places[b, k]]`` for every b and k; quicker than numpy's take_along_axis."""
    return x[np.arange(len(x))[:, None], places]

"""Comparison of an exported model with the model that was exported."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import deployed
from ..deployed.graphs import EOS, PAD, Array, Graphs
from ..models.shared.translator import TorchTranslator

# Lengths of the sources in three batches, end-of-sentence symbol included, and the number of tokens that follow. The
# last batch is longer than the default window, block and chunk, so that a graph that is wrong from there on is found.
BATCHES = (((3,), 6), ((20, 8), 6), ((301, 34, 2), 1100))
BEAM = 2


@torch.no_grad()
def log_probability_differences(translator: TorchTranslator, folder: Path) -> tuple[float, float]:
    """Compare log-probabilities of the graphs in ``folder`` with the model, called as fairseq generates.

    Returns:
        The largest difference, and the 99 % quantile of the differences. In a few tokens rounding may be magnified:
        some models, such as retention, divide each head by a norm that may be near 0.
    """
    [model] = translator.models
    graphs = deployed.Translator(folder).graphs
    longest, longest_target = translator.max_positions
    generator = np.random.default_rng(1)
    differences = []
    for lengths, steps in (*BATCHES, *(((start["longest"],), 1) for start in graphs.starts)):
        source = np.full((len(lengths), min(max(lengths), longest)), PAD)
        for row, length in zip(source, lengths, strict=True):
            row[:length] = generator.integers(EOS + 1, len(translator.src_dict), len(row[:length]))
            row[:length][-1] = EOS
        sizes = len(translator.tgt_dict), min(steps, longest_target)
        batch = [*batch_differences(model, graphs, source, *sizes, generator)]
        differences.append((np.max(batch), np.quantile(batch, 0.99)))
    largest, quantile_99 = np.max(differences, axis=0)  # NaN stays NaN
    return float(largest), float(quantile_99)


def batch_differences(
    model: nn.Module, graphs: Graphs, source: Array, vocabulary: int, steps: int, generator: np.random.Generator
) -> Iterator[float]:
    """Yield the differences for a batch of sources, followed by random tokens."""
    reference = EagerSearch(model, source)
    log_probs, state = graphs.start(source)
    yield largest_difference(reference.log_probs(np.full((len(source) * BEAM, 1), EOS))[::BEAM], log_probs)
    tokens = np.argsort(np.where(np.arange(vocabulary) == PAD, np.inf, -log_probs), axis=1)[:, :BEAM]
    scores = np.zeros(tokens.shape, dtype=np.float32)
    rows = np.arange(len(source))[:, None].repeat(BEAM, 1)
    for t in range(1, steps):
        best, places, ends = graphs.step(state, tokens, scores, rows, t)
        expected = reference.log_probs(np.full((tokens.size, t + 1), EOS), tokens)
        total = expected.masked_fill(torch.arange(vocabulary) == PAD, -torch.inf).view(len(source), -1)
        yield largest_difference(total.topk(best.shape[1]).values, best)
        yield largest_difference(total.gather(1, torch.from_numpy(places)), best)
        yield largest_difference(expected[:, EOS].view(ends.shape), ends)
        tokens = generator.integers(EOS + 1, vocabulary, tokens.shape)
        rows = generator.permuted(np.arange(tokens.size).reshape(tokens.shape), axis=1)
        reference.reorder(rows)


def largest_difference(expected: Tensor, actual: Array) -> float:
    return float(np.abs(expected.numpy() - actual).max())


class EagerSearch:
    """The model, called as fairseq's generator calls it, with a row per hypothesis.

    Args:
        model: an encoder-decoder.
        source: ``(B, S)`` int64.
    """

    def __init__(self, model: Any, source: Array) -> None:
        self.model = model
        tokens = torch.from_numpy(source)
        encoded = model.encoder(tokens, src_lengths=tokens.ne(PAD).sum(1))
        beams = torch.arange(len(source)).repeat_interleave(BEAM)
        self.encoded = model.encoder.reorder_encoder_out(encoded, beams)
        self.state: dict[str, Any] = {}

    def log_probs(self, tokens_so_far: Array, newest: Array | None = None) -> Tensor:
        """``(B K, V)`` for the token after ``tokens_so_far (B K, t)``, whose last column is ``newest (B, K)``."""
        prefix = torch.from_numpy(tokens_so_far)
        if newest is not None:
            prefix[:, -1] = torch.from_numpy(newest).flatten()
        out = self.model.decoder(prefix, encoder_out=self.encoded, incremental_state=self.state)
        return self.model.get_normalized_probs(out, log_probs=True)[:, -1]

    def reorder(self, rows: Array) -> None:
        self.model.decoder.reorder_incremental_state_scripting(self.state, torch.from_numpy(rows).flatten())

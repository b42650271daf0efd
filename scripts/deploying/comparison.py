"""An exported model beside the one that it was made of."""

from pathlib import Path

import numpy as np
import torch

from deploying.modules import Start, Step
from fairseq_luna import deployed
from fairseq_luna.deployed.graphs import EOS, PAD
from fairseq_luna.models.transformer.translator import Translator

# Of the sources in three batches, without the end mark, and the words that follow. The last are more than a window,
# a block or a choice of steps holds by default: a graph that has another form from there on is found.
LENGTHS, STEPS = ((2,), (19, 7), (300, 33, 1)), (6, 6, 300)
BEAM = 2


@torch.no_grad()
def difference(translator: Translator, folder: Path) -> float:
    """The largest difference of a log-probability of the graphs in ``folder`` and the model."""
    [model] = translator.models
    graphs = deployed.Translator(folder).graphs
    start, step = Start(model), Step(model)
    draw = np.random.default_rng(1)
    worst = 0.0
    for all_lengths, all_steps in zip(LENGTHS, STEPS, strict=True):
        lengths = [min(length, translator.max_positions[0] - 1) for length in all_lengths]
        steps = min(all_steps, translator.max_positions[1])
        source = np.full((len(lengths), max(lengths) + 1), PAD)
        for row, length in zip(source, lengths, strict=True):
            row[:length], row[length] = draw.integers(EOS + 1, len(translator.src_dict), length), EOS
        log_probs, state = graphs.start(source)
        expected, tensors = start(torch.from_numpy(source))
        worst = max(worst, float(np.abs(expected.numpy() - log_probs).max()))
        words = np.argsort(-log_probs, axis=1)[:, :BEAM]
        scores = np.zeros(words.shape, dtype=np.float32)
        rows = np.arange(len(source))[:, None].repeat(BEAM, 1)
        for t in range(1, steps):
            inputs = [torch.from_numpy(x) for x in (words, scores, rows.ravel())]
            best, _, ends, moved = step(*inputs, torch.empty(t), tensors)
            tensors |= moved
            found = graphs.step(state, words, scores, rows, t)
            for theirs, ours in ((best, found[0]), (ends, found[2])):
                worst = max(worst, float(np.abs(theirs.numpy() - ours).max()))
            words = draw.integers(EOS + 1, len(translator.tgt_dict), words.shape)
            rows = draw.permuted(np.arange(words.size).reshape(words.shape), axis=1)
    return worst

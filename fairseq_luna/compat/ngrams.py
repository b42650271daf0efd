"""``--no-repeat-ngram-size`` blocks nothing.

fairseq compares the end of its buffer of tokens, which is padding until the longest hypothesis is written, in place of
the end of the hypothesis; and it compares the whole buffer for single words (fairseq 0.12.2 and fairseq-fixed 0.12.3.1,
without its CUDA extension). With this patch a word is not generated that would repeat N words of its hypothesis.
"""

import math

import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock
from torch import Tensor

SUMMARY = "--no-repeat-ngram-size blocked nothing; it blocks"


def is_needed() -> bool:
    """Whether "6" may follow the second "5" of "5 6 5" although no pair may be repeated."""
    buffer = torch.tensor([[2, 5, 6, 5, 1, 1]])
    blocked = NGramRepeatBlock(2, use_extension=False)(buffer, torch.zeros(1, 8), 1, 1, 3)
    return blocked.isfinite().all().item()


def _no_repeat_ngram(
    self: NGramRepeatBlock, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """Set the log-probabilities of words that would repeat an n-gram to -inf, in place.

    It has the name of fairseq's method and takes what TorchScript does, because fairseq's generator can be scripted.

    Args:
        tokens: ``(rows, longest + 2)``, of which the first is the symbol that starts a hypothesis and ``step`` follow.
        lprobs: ``(rows, words)`` of the next word.
    """
    n = self.no_repeat_ngram_size
    written = tokens[:, 1 : step + 1]
    if step >= n:
        ngrams = written.unfold(1, n, 1)
        begun = written[:, step - n + 1 :].unsqueeze(1)
        repeated = (ngrams[:, :, : n - 1] == begun).all(dim=2).nonzero()
        row, place = repeated[:, 0], repeated[:, 1]
        lprobs[row, ngrams[row, place, n - 1]] = -math.inf
    return lprobs


def apply() -> None:
    NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram

"""Options of fairseq's beam search that do nothing or fail: repeated n-grams, and groups of diverse beams."""

import math
from typing import Optional

import torch
from fairseq.data import Dictionary
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import DiverseBeamSearch
from torch import Tensor

from fairseq_luna.compat.patch import Patch


class RepeatedNgrams(Patch):
    """``--no-repeat-ngram-size`` blocks nothing.

    fairseq compares the end of its buffer of tokens, which is padding until the longest hypothesis is written, instead
    of the end of the hypothesis; and for single tokens it compares the whole buffer (fairseq 0.12.2 and fairseq-fixed
    0.12.3.1, without its CUDA extension). With this patch no token is generated that would repeat N tokens of its
    hypothesis.
    """

    name = "ngrams"
    summary = "--no-repeat-ngram-size blocked nothing; it blocks"

    def is_needed(self) -> bool:
        """Whether "6" may follow the second "5" of "5 6 5" although no pair may be repeated."""
        buffer = torch.tensor([[2, 5, 6, 5, 1, 1]])
        blocked = NGramRepeatBlock(2, use_extension=False)(buffer, torch.zeros(1, 8), 1, 1, 3)
        return blocked.isfinite().all().item()

    def apply(self) -> None:
        NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram


def _no_repeat_ngram(
    self: NGramRepeatBlock, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """Set the log-probabilities of tokens that would repeat an n-gram to -inf, in place.

    It has the name of fairseq's method and arguments that TorchScript accepts, because fairseq's generator can be
    scripted.

    Args:
        tokens: ``(rows, longest + 2)``: the symbol that starts a hypothesis, ``step`` tokens, and unused places.
        lprobs: ``(rows, tokens)``, for the next token.
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


class DiverseBeamRows(Patch):
    """``--diverse-beam-groups`` ends in IndexError after the first batches, or confuses the sentences of a batch.

    fairseq keeps one row for each sentence of a batch, with the overlap of its groups of beams, but looks the row up by
    the number of the sentence in the data (fairseq-fixed 0.12.3.1, not 0.12.2). With this patch rows are looked up by
    their place in the batch, and the rows of finished sentences are removed.
    """

    name = "diverse-beams"
    summary = "--diverse-beam-groups failed after the first batches; it does not"

    def is_needed(self) -> bool:
        """Whether a batch that consists of sentence number 7 fails."""
        search, words = DiverseBeamSearch(Dictionary(), num_groups=2, diversity_strength=0.5), torch.zeros(1, 2, 8)
        try:
            for step in range(2):
                search.step(step, words, torch.zeros(1, 2, 1), None, torch.tensor([7]))
        except IndexError:
            return True
        return False

    def apply(self) -> None:
        DiverseBeamSearch.step_of_rows = DiverseBeamSearch.step
        DiverseBeamSearch.step = torch.jit.export(_diverse_step)
        DiverseBeamSearch.prune_sentences = torch.jit.export(_prune_sentences)


# Names and types that TorchScript accepts, because fairseq's generator can be scripted.
def _diverse_step(
    self: DiverseBeamSearch,
    step: int,
    lprobs: Tensor,
    scores: Tensor,
    prev_output_tokens: Optional[Tensor] = None,  # noqa: UP045
    original_batch_idxs: Optional[Tensor] = None,  # noqa: UP045
) -> tuple[Tensor, Tensor, Tensor]:
    rows = torch.arange(lprobs.size(0), device=lprobs.device)
    return self.step_of_rows(step, lprobs, scores, prev_output_tokens, rows)


def _prune_sentences(self: DiverseBeamSearch, batch_idxs: Tensor) -> None:
    """Keep the rows ``batch_idxs`` of unfinished sentences; the generator calls this."""
    self.group_overlap = self.group_overlap[batch_idxs]

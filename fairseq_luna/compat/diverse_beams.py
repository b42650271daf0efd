"""``--diverse-beam-groups`` ends in IndexError after the first batches, or confuses the sentences of a batch.

fairseq keeps for each row of a batch what its groups of beams have in common, and looks it up by the number that the
sentence has in the data (fairseq-fixed 0.12.3.1, not 0.12.2). With this patch rows are looked up by their places, and
those of finished sentences are removed.
"""

from typing import Optional

import torch
from fairseq.data import Dictionary
from fairseq.search import DiverseBeamSearch
from torch import Tensor

SUMMARY = "--diverse-beam-groups failed after the first batches; it does not"


def is_needed() -> bool:
    """Whether a batch of the sentence number 7 alone fails."""
    search, words = DiverseBeamSearch(Dictionary(), num_groups=2, diversity_strength=0.5), torch.zeros(1, 2, 8)
    try:
        for step in range(2):
            search.step(step, words, torch.zeros(1, 2, 1), None, torch.tensor([7]))
    except IndexError:
        return True
    return False


# With names and types that TorchScript takes, because fairseq's generator can be scripted.
def _step(
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
    """Called by the generator with the rows that go on."""
    self.group_overlap = self.group_overlap[batch_idxs]


def apply() -> None:
    DiverseBeamSearch.step_of_rows = DiverseBeamSearch.step
    DiverseBeamSearch.step = torch.jit.export(_step)
    DiverseBeamSearch.prune_sentences = torch.jit.export(_prune_sentences)

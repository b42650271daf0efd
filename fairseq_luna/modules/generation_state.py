"""Incremental state of a module for generation."""

from fairseq.incremental_decoding_utils import FairseqIncrementalState
from torch import Tensor, nn

ModuleState = dict[str, Tensor]
# fairseq's generator passes one dictionary to all modules, which keep their states under different keys.
IncrementalState = dict[str, dict[str, Tensor | None]]


class GenerationState(FairseqIncrementalState, nn.Module):
    """A module whose state is kept in fairseq's dictionary and reordered with the beam.

    The first dimension of every tensor in the state is the batch.
    """

    def load_state(self, incremental_state: IncrementalState | None) -> ModuleState | None:
        """This module's state, or None before the first step and outside generation."""
        return FairseqIncrementalState.get_incremental_state(self, incremental_state, "state")

    def save_state(self, incremental_state: IncrementalState, state: ModuleState) -> None:
        """Store ``state`` for the next step."""
        FairseqIncrementalState.set_incremental_state(self, incremental_state, "state", state)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Move row ``new_order[i]`` of every tensor to row i; called when beams are selected or finish."""
        state = self.load_state(incremental_state)
        if state is not None:
            reordered = {name: tensor.index_select(0, new_order) for name, tensor in state.items()}
            self.save_state(incremental_state, reordered)

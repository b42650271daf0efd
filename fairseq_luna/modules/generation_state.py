"""What a module remembers between two steps of generation."""

from fairseq.incremental_decoding_utils import FairseqIncrementalState
from torch import Tensor, nn

ModuleState = dict[str, Tensor]
# fairseq's generator hands one dictionary to all modules; each finds its own part in it.
IncrementalState = dict[str, dict[str, Tensor | None]]


class GenerationState(FairseqIncrementalState, nn.Module):
    """A module whose tensors for generation are kept in fairseq's dictionary and follow the beam.

    Every tensor of the state has the batch as its first dimension.
    """

    def load_state(self, incremental_state: IncrementalState | None) -> ModuleState | None:
        """This module's tensors, or None before the first step and outside generation."""
        return FairseqIncrementalState.get_incremental_state(self, incremental_state, "state")

    def save_state(self, incremental_state: IncrementalState, state: ModuleState) -> None:
        """Keep ``state`` for the next step."""
        FairseqIncrementalState.set_incremental_state(self, incremental_state, "state", state)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Let row i of every tensor be row ``new_order[i]``: called when beams are chosen or finish."""
        state = self.load_state(incremental_state)
        if state is not None:
            reordered = {name: tensor.index_select(0, new_order) for name, tensor in state.items()}
            self.save_state(incremental_state, reordered)

"""Incremental state of a module for generation."""

import uuid
from typing import Any

from torch import Tensor, nn

ModuleState = dict[str, Tensor]
# fairseq's generator passes one dictionary to all modules, which keep their states under different keys.
IncrementalState = dict[str, dict[str, Any]]


class GenerationState(nn.Module):
    """A module whose state is kept in fairseq's dictionary and reordered with the beam.

    The first dimension of every tensor in the state is the batch. Tensors that depend on the source alone are kept
    apart, as constants: they have one row for each sentence, which is read by all its beams.

    A copy of the module has keys of its own: it does not read the states of the original.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._name_of_state = str(uuid.uuid4())

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Called for a new object by ``copy`` and ``pickle``."""
        super().__setstate__(state)
        self._name_of_state = str(uuid.uuid4())

    def state_key(self, kind: str) -> str:
        """The key of this module's "state" or "constants" in fairseq's dictionary."""
        return f"{self._name_of_state}.{kind}"

    def load_state(self, incremental_state: IncrementalState | None) -> ModuleState | None:
        """This module's state, or None before the first step and outside generation."""
        return None if incremental_state is None else incremental_state.get(self.state_key("state"))

    def save_state(self, incremental_state: IncrementalState, state: ModuleState) -> None:
        """Store ``state`` for the next step."""
        incremental_state[self.state_key("state")] = state

    def load_constants(self, incremental_state: IncrementalState | None) -> ModuleState | None:
        """This module's constants, or None before the first step and outside generation."""
        return None if incremental_state is None else incremental_state.get(self.state_key("constants"))

    def save_constants(self, incremental_state: IncrementalState, constants: ModuleState, *, beams: int) -> None:
        """Store ``constants``, each row of which is read by ``beams`` consecutive rows of the batch."""
        number = {"beams": beams} if beams > 1 else {}
        incremental_state[self.state_key("constants")] = constants | number

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Move row ``new_order[i]`` of the batch to row i; called when beams are selected or finish.

        As in fairseq's attention to the source, the rows of a batch that keeps its size stay beams of the same
        sentences: then the constants are not copied.
        """
        state = self.load_state(incremental_state)
        if state is not None:
            self.save_state(incremental_state, rows_of(state, new_order))
        constants: dict[str, Any] = {**(self.load_constants(incremental_state) or {})}
        beams: int = constants.pop("beams", 1)
        if constants and len(new_order) != beams * len(next(iter(constants.values()))):
            sentences = new_order.view(-1, beams)[:, 0] // beams
            self.save_constants(incremental_state, rows_of(constants, sentences), beams=beams)


def as_state(fields: Any) -> ModuleState:
    """The tensors of a NamedTuple by name, without those that are None."""
    return {name: tensor for name, tensor in fields._asdict().items() if tensor is not None}


def from_state(kind: Any, state: ModuleState) -> Any:
    """The NamedTuple ``kind`` whose tensors are in ``state``; those that are not there are None."""
    return kind(**{name: state.get(name) for name in kind._fields})


def rows_of(tensors: ModuleState, rows: Tensor) -> ModuleState:
    """The same tensors with these rows of their first dimension."""
    return {name: tensor.index_select(0, rows) for name, tensor in tensors.items()}

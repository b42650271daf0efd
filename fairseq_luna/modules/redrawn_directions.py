"""Random directions that training draws more than once."""

import random
from typing import Any

import torch
from torch import Tensor, nn

from ..usage_error import ArgumentError


class RedrawnDirections(nn.Module):
    """Random directions as a buffer, drawn again after a number of updates, in training.

    They are a function of a seed, which torch's generator gives when the module is created, and of the number of the
    redraw. So all processes have the same ones, and a resumed training too: the seed is in the checkpoint.

    fairseq calls :meth:`set_num_updates`; another training loop may do it too, or keep the first ones.
    """

    directions: Tensor
    seed: Tensor

    def register_directions(self, redraw_features: int, *, persistent: bool = True) -> None:
        """Draw the first; the constructor of a subclass calls this when :meth:`draw` can be called.

        ``redraw_features`` is the number of updates between two drawings; 0 = never. ``persistent``: the directions are
        in the checkpoint too, for evaluation.

        Raises:
            UsageError: if it is negative.
        """
        if redraw_features < 0:
            raise ArgumentError("redraw_features", redraw_features, "must be 1 or more updates; or 0: never")
        self.redraw_features = redraw_features
        self.redraw: int | None = None  # number of the redraw of ``directions``; unknown after loading a checkpoint
        self.register_buffer("seed", torch.randint(2**62, ()))
        self.register_buffer("directions", self.directions_of_redraw(0), persistent=persistent)
        self.register_load_state_dict_post_hook(after_loading)

    def draw(self, generator: torch.Generator) -> Tensor:
        """The directions from the numbers of ``generator``, on the CPU."""
        raise NotImplementedError

    def set_num_updates(self, updates: int) -> None:
        """Called by fairseq before every update."""
        redraw = updates // self.redraw_features if self.redraw_features else 0
        if self.training and redraw != self.redraw:
            self.directions.copy_(self.directions_of_redraw(redraw))
            self.redraw = redraw

    def directions_of_redraw(self, redraw: int) -> Tensor:
        """The directions of the ``redraw``-th drawing."""
        return self.draw(self.generator(redraw)).to(self.seed.device)

    def generator(self, name: object) -> torch.Generator:
        """The random numbers of this layer that have a ``name``."""
        seed = 0 if self.seed.is_meta else int(self.seed)  # a module without numbers has directions without numbers
        return torch.Generator().manual_seed(random.Random(f"{seed} {name}").getrandbits(63))


def after_loading(module: RedrawnDirections, _: Any) -> None:
    """Forget the number of the redraw, which checkpoints lack; draw directions that they lack again from the seed."""
    module.redraw = None
    if "directions" in module._non_persistent_buffers_set:
        module.directions = module.directions_of_redraw(0).to(module.directions.dtype)

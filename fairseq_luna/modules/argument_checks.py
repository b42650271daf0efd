"""Checks of arguments: an error is one line that names the argument and says what to do."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..ops.padding import Padding, PaddingLike
from ..usage_error import ArgumentError, UsageError


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise UsageError if ``value``, of the argument called ``name``, is not one of ``choices``."""
    if value not in choices:
        raise ArgumentError(name, value, f"choose {', '.join(choices[:-1])} or {choices[-1]}")


def check_heads(num_heads: int, embed_dim: int, *, name: str = "num_heads", size_name: str = "embed_dim") -> None:
    """Raise UsageError if ``num_heads`` does not divide ``embed_dim``; arguments or flags called as the names say."""
    if num_heads < 1 or embed_dim % num_heads:
        raise ArgumentError(name, num_heads, f"must be 1 or more and divide {size_name} {embed_dim}")


def check_positive(**numbers: int) -> None:
    """Raise UsageError if one of the arguments is below 1."""
    for name, value in numbers.items():
        if value < 1:
            raise ArgumentError(name, value, "must be 1 or more")


def validate_padding(padding: PaddingLike, x: Tensor | None, name: str = "padding_mask") -> Padding:
    """The :class:`.Padding` of ``x (T, B, C)``, from the argument ``name``: one, a mask or None, for no padding.

    Without ``x`` the argument is not read. A :class:`.Padding` comes from a model and is not checked again.

    Raises:
        UsageError: if a mask is not ``(B, T)`` bool. Other dtypes would be read as something else, and other shapes
            broadcast.
    """
    if x is None:
        return Padding()
    if padding is None or isinstance(padding, Padding):
        return Padding.of(padding)
    steps, batch = x.shape[:2]
    if not isinstance(padding, Tensor):
        description = type(padding).__name__
    elif padding.dtype is torch.bool and padding.shape == (batch, steps):
        return Padding(padding)
    else:
        description = f"{padding.dtype} {tuple(padding.shape)}"
    raise UsageError(
        f"{name} {description}: must be torch.bool {(batch, steps)}, (batch, steps), True where a step is padding"
    )


class NamedArguments:
    """Errors of a forward pass name an argument as ``argument_names`` does: models give the flags."""

    argument_names: Mapping[str, str] = {}

    def check_length(self, steps: int, max_positions: int, *, attention: str) -> None:
        """Raise UsageError if ``attention``, which has ``max_positions``, cannot read ``steps``."""
        if steps > max_positions:
            raise ArgumentError(
                self.argument_names.get("max_positions", "max_positions"),
                max_positions,
                f"{attention} reads at most this many tokens, and a sentence has {steps}; leave it out, or train with"
                " a larger number",
            )

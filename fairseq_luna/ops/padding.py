"""Padding: which steps of a batch are padding, and the tensors that the layers of a model derive from it.

A model makes one :class:`Padding` for each sequence of a batch and passes it down as an argument: model, layer,
attention, op. Tensors that an op derives from it, such as an additive mask, are kept in it for the next layer. Without
this a training step of base size launches 2,070 operators instead of 1,114 with block attention, and 1,397 instead of
1,267 with Luna (``scripts/benchmark.py launches``, 2026-11-26).
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar, Union

import torch
from torch import Tensor

Result = TypeVar("Result")

# On a GPU torch copies a mask if its strides are not multiples of this.
ALIGNMENT = 16


class DerivedValueCache(Protocol):
    """An object that keeps the results of its :func:`computed_once` functions for as long as it lives.

    No result may refer to the object: the cycle would keep its tensors until Python's garbage collector runs.
    """

    derived: dict[Any, Any]


def computed_once(function: Callable[..., Result]) -> Callable[..., Result]:
    """``function(owner, *arguments)``, whose result the owner keeps: later layers get the same object.

    The owner is a :class:`Padding`, or another :class:`DerivedValueCache`. The arguments are hashable, and
    the result has no gradient. A compiled graph keeps nothing, because that would be a side effect for which the next
    graph is compiled again; within one graph the compiler computes it once.
    """

    @wraps(function)
    def result_of(owner: DerivedValueCache, *arguments: Any) -> Result:
        if torch.compiler.is_compiling():
            return function(owner, *arguments)
        key = (function, *arguments)
        try:
            result = owner.derived.get(key)
        except TypeError:  # a size that is a symbol has no hash
            return function(owner, *arguments)
        if result is None:
            result = owner.derived[key] = function(owner, *arguments)
        return result

    return result_of


class Padding:
    """The steps of a batch that are padding; they may be anywhere.

    Args:
        mask: ``(B, T)`` bool, True = padding; None = no step is padding. The code that makes the batch knows which.
    """

    def __init__(self, mask: Tensor | None = None) -> None:
        self.mask = mask
        self.derived: dict[Any, Any] = {}

    @staticmethod
    def of(padding: "PaddingLike") -> "Padding":
        """The :class:`Padding` for the argument of a public function, which may also be a mask or None."""
        return padding if isinstance(padding, Padding) else Padding(padding)

    def with_mask(self, batch: int, steps: int, device: torch.device) -> "Padding":
        """The same with a mask in any case: without padding, an all-False mask of this shape."""
        return self if self.mask is not None else _no_padding(self, batch, steps, device)

    @property
    def existing_mask(self) -> Tensor:
        """The mask. Call it only where there is one."""
        assert self.mask is not None
        return self.mask

    @property
    def lengths(self) -> Tensor:
        """The number of real steps of each sentence, ``(B,)`` int64."""
        return _lengths(self)

    @property
    def counts(self) -> Tensor:
        """The number of real steps up to each step, ``(B, T)`` int64."""
        return _counts(self)

    @property
    def positions(self) -> Tensor:
        """The index of each step among the real ones, from 0; at padding any valid index: ``(B, T)`` int64."""
        return _last_positions(self)

    @property
    def real_first(self) -> Tensor:
        """The indices of each sentence's steps, the real steps first, then the padding: ``(B, T)`` int64."""
        return _real_first(self)

    @property
    def rows_real_first(self) -> Tensor:
        """:attr:`real_first` as row indices of ``x (T, B, C)``: see :func:`rows_of`."""
        return _rows_real_first(self)

    @property
    def rows_in_original_order(self) -> Tensor:
        """The inverse permutation of :attr:`rows_real_first`: it restores the original order."""
        return _rows_in_original_order(self)

    @computed_once
    def real_factor(self, dtype: torch.dtype) -> Tensor | None:
        """A factor that is 0 at padding and otherwise 1, ``(B, 1, T, 1)``; None without padding."""
        return None if self.mask is None else (~self.mask).to(dtype)[:, None, :, None]

    @computed_once
    def scores(self, dtype: torch.dtype) -> Tensor | None:
        """The :func:`additive_mask` for the scores of keys, ``(B, 1, 1, T)``; None without padding.

        torch would make it from the bool mask at every call.
        """
        return None if self.mask is None else additive_mask(self.mask[:, None, None], dtype)

    def zero(self, x: Tensor) -> Tensor:
        """``x (B, H, T, D)``, or ``(B, H, T)``, with zeros at padding; without padding ``x`` itself."""
        if self.mask is None:
            return x
        return x.masked_fill(self.mask[:, None, :, None] if x.dim() == 4 else self.mask[:, None], 0)

    def put_real_first(self, x: Tensor) -> Tensor:
        """``x (B, H, T, D)`` with each sentence's real steps first, and its padding after them."""
        return x if self.mask is None else reorder_steps(x, self.rows_real_first, self.rows_in_original_order)

    def restore_order(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`put_real_first`."""
        return x if self.mask is None else reorder_steps(x, self.rows_in_original_order, self.rows_real_first)

    def pack_left(self, x: Tensor) -> Tensor:
        """``x (B, H, T, D)`` with each sentence's real steps first, and zeros after them."""
        return self.put_real_first(self.zero(x))

    def restore_places(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`pack_left`: real steps of ``x (B, H, T, D)`` in their places, zeros at padding."""
        return self.zero(self.restore_order(x))

    def at_step(self, step: int) -> "Padding":
        """The padding of one step of the sequence."""
        return self if self.mask is None else Padding(self.mask[:, step : step + 1])

    def rows(self, rows: Tensor) -> "Padding":
        """The padding of these rows of the batch."""
        return self if self.mask is None else Padding(self.mask.index_select(0, rows))

    def repeat_rows(self, times: int) -> "Padding":
        """The padding of a batch in which each row is repeated ``times`` times in a row."""
        return self if self.mask is None or times == 1 else _repeat_padding(self, times)

    def followed_by(self, other: "Padding", *, steps: int, others: int, like: Tensor) -> "Padding":
        """The padding of this sequence of ``steps`` followed by ``others`` more, whose padding is ``other``.

        ``like`` is ``(T, B, C)``: it has the batch and the device.
        """
        if self.mask is None and other.mask is None:
            return self
        batch, device = like.shape[1], like.device
        masks = (self.with_mask(batch, steps, device), other.with_mask(batch, others, device))
        return Padding(torch.cat([padding.existing_mask for padding in masks], dim=1))


PaddingLike = Union[Padding, Tensor, None]  # noqa: UP007


@computed_once
def _no_padding(padding: Padding, batch: int, steps: int, device: torch.device) -> Padding:
    return Padding(torch.zeros(batch, steps, dtype=torch.bool, device=device))


@computed_once
def _repeat_padding(padding: Padding, times: int) -> Padding:
    return Padding(padding.existing_mask.repeat_interleave(times, 0))


@computed_once
def _lengths(padding: Padding) -> Tensor:
    return (~padding.existing_mask).sum(1)


@computed_once
def _counts(padding: Padding) -> Tensor:
    return (~padding.existing_mask).cumsum(1)


@computed_once
def _last_positions(padding: Padding) -> Tensor:
    return (padding.counts - 1).clamp(min=0)


@computed_once
def _real_first(padding: Padding) -> Tensor:
    return torch.argsort(padding.existing_mask.to(torch.uint8), dim=1, stable=True)


@computed_once
def _rows_real_first(padding: Padding) -> Tensor:
    return rows_of(padding.real_first)


@computed_once
def _rows_in_original_order(padding: Padding) -> Tensor:
    mask = padding.existing_mask
    return rows_of(torch.where(mask, padding.lengths[:, None] + mask.cumsum(1), padding.counts) - 1)


@computed_once
def in_own_segment(padding: Padding, slots: int, steps: int, device: torch.device) -> Tensor:
    """Whether a step lies in the segment of a slot: slot l has the l-th of ``min(L, n)`` equal segments.

    Args:
        padding: the padding of the sequence.
        slots: L.
        steps: T.
        device: the device of the result.

    Returns:
        ``(B, L, T)`` bool, B = 1 without padding. The p-th of n real steps is in segment ``floor(p min(L, n) / n)``;
        padding is in the segment of some real step.
    """
    padding = padding.with_mask(1, steps, device)
    lengths = padding.lengths.clamp(min=1)[:, None]
    segments = padding.positions * lengths.clamp(max=slots) // lengths
    return segments[:, None] == torch.arange(slots, device=device)[:, None]


def rows_of(steps: Tensor) -> Tensor:
    """``steps (B, T)`` as rows of ``x (T, B, C)``, whose step t of sentence b is row ``t B + b``: ``(T B)`` int64."""
    batch = steps.shape[0]
    return (steps.t() * batch + torch.arange(batch, device=steps.device)).flatten()


def reorder_steps(x: Tensor, rows: Tensor, inverse: Tensor) -> Tensor:
    """``x (B, H, T, D)`` with its steps in another order, given as in :func:`reorder_rows`."""
    batch, heads, length, size = x.shape
    read = reorder_rows(x.permute(2, 0, 1, 3).reshape(length * batch, heads * size), rows, inverse)
    return read.view(length, batch, heads, size).permute(1, 2, 0, 3)


def reorder_rows(x: Tensor, rows: Tensor, inverse: Tensor) -> Tensor:
    """The ``rows (R,)`` of ``x (R, C)``, each of them once, int64; ``inverse`` is the inverse permutation."""
    return _Reordered.apply(x, rows, inverse)


class _Reordered(torch.autograd.Function):
    """Rows in another order. Their gradient reads rows too, where the gradient of ``index_select`` adds to zeros.

    In a compiled graph additions to rows are atomic, and with torch 2.6 some of them do not compile
    (docs/reliability.md).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, rows: Tensor, inverse: Tensor) -> Tensor:
        return x.index_select(0, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], _: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        rows, inverse = ctx.saved_tensors
        return _Reordered.apply(gradient, inverse, rows), None, None


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask to add to scores: -inf where ``hidden``, bool of any shape, is True, otherwise 0."""
    if hidden.is_cuda:
        return aligned_zeros(hidden, hidden.shape, dtype).masked_fill_(hidden, float("-inf"))
    # One operator, where writing into a part of a tensor is a dozen in an exported graph.
    return torch.zeros((), dtype=dtype, device=hidden.device).masked_fill(hidden, float("-inf"))


def aligned_zeros(like: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A mask of ``shape`` on the device of ``like``, with the strides that a GPU's kernels need."""
    *others, places = shape
    stored = -(-places // ALIGNMENT) * ALIGNMENT if like.is_cuda else places
    return like.new_zeros(*others, stored, dtype=dtype)[..., :places]

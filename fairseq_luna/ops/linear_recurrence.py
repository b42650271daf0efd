"""A linear recurrence of each channel: ``h_t = f_t h_{t-1} + b_t``."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .chunks import pad_end
from .dtypes import accumulation_dtype
from .padding import Padding, PaddingLike
from .symbolic_sizes import missing_steps


def linear_recurrence_reference(f: Tensor, b: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """The state of each channel after each step, in a loop over the steps.

        h_t = f_t h_{t-1} + b_t,     h_{-1} = 0

    A padded step leaves h as it is, at any position. Source: the recurrence of simple recurrent units
    (arXiv 1709.02755, equation 2).

    Args:
        f: ``(T, B, C)``; with 0 <= f <= 1 no state grows beyond the sum of ``|b|``.
        b: ``(T, B, C)``.
        padding: ``(B, T)`` bool, True = padding; None = no padding.

    Returns:
        ``(T, B, C)`` in the dtype of ``b``; computed in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(b)
    h, states = torch.zeros_like(b[0], dtype=dtype), []
    for t in range(len(b)):
        following = f[t].to(dtype) * h + b[t].to(dtype)
        h = following if padding_mask is None else torch.where(padding_mask[:, t, None], h, following)
        states.append(h)
    return torch.stack(states).to(b.dtype)


# Steps that a loop goes through one by one: fewer passes over the memory than by pairs, but an operation for each step.
LOOPED = 32


def linear_recurrence(f: Tensor, b: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """The same function as :func:`linear_recurrence_reference`: few and large operations go through time.

    Result: ``(T, B, C)`` in the dtype of ``b``; computed in fp32 for half precision, also under autocast.
    """
    factors, inputs = real_factors_and_inputs(f, b, padding)
    return _Recurrence.apply(factors[1:], inputs, False).to(b.dtype)


class _Recurrence(torch.autograd.Function):
    """``h_t = f_{t-1} h_{t-1} + b_t``, or with ``backwards`` ``h_t = f_t h_{t+1} + b_t``: f_t is between t and t + 1.

    The gradient of b is the recurrence in the other direction, so that every derivative exists.
    """

    @staticmethod
    def forward(f: Tensor, b: Tensor, backwards: bool) -> Tensor:
        if torch.compiler.is_compiling():
            return _solve_for_any_length(b.flip(0), f.flip(0)).flip(0) if backwards else _solve_for_any_length(b, f)
        h = b.clone()
        _solve_in_place(h, f, backwards)
        return h

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.backwards = inputs[2]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        f, h = ctx.saved_tensors
        db = _Recurrence.apply(f, gradient, not ctx.backwards)
        df = db[:-1] * h[1:] if ctx.backwards else db[1:] * h[:-1]
        return df, db, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], f: Tensor, b: Tensor, backwards: bool) -> tuple[Tensor, int]:
        cases = (
            x[:, None].expand(-1, info.batch_size, *x.shape[1:]) if dim is None else x.movedim(dim, 1)
            for x, dim in zip((f, b), in_dims, strict=False)
        )
        return _Recurrence.apply(*cases, backwards), 1


def _solve_in_place(h: Tensor, f: Tensor, backwards: bool) -> None:
    """Turn b into the states, in place.

    The odd steps are a recurrence of half the length: each absorbs the even step before it, and the product of two
    factors leads from it to the next odd step. They are solved first; then each even step follows from an odd one.
    Nothing is divided by a product of factors, which may be 0.

    Args:
        h: b, ``(T, ...)``.
        f: the factors between neighboring steps, ``(T - 1, ...)``.
        backwards: from the last step to the first.
    """
    if len(h) <= LOOPED:
        steps = [*zip(h[:-1], f, h[1:], strict=True)]
        for earlier, factor, later in reversed(steps) if backwards else steps:
            _accumulate(earlier, factor, later, backwards)
        return
    even, odd = h[::2], h[1::2]
    from_even, from_odd = (even[: len(odd)], f[::2], odd), (odd[: len(even) - 1], f[1::2], even[1:])
    first, last = (from_odd, from_even) if backwards else (from_even, from_odd)
    _accumulate(*first, backwards)
    _solve_in_place(odd, f[1::2][: len(odd) - 1] * f[2::2], backwards)
    _accumulate(*last, backwards)


def _accumulate(earlier: Tensor, factor: Tensor, later: Tensor, backwards: bool) -> None:
    """``later += factor earlier``; ``earlier += factor later`` if ``backwards``."""
    target, source = (earlier, later) if backwards else (later, earlier)
    target.addcmul_(factor, source)


def _solve_for_any_length(b: Tensor, f: Tensor) -> Tensor:
    """The states, in a graph of torch.compile that holds for all lengths of as many levels of chunks.

    A graph of :func:`_solve_in_place` holds for one length. Here chunks of :data:`LOOPED` steps go through their steps
    side by side, each from a state of 0; then the states at their ends are a recurrence of the same kind.

    Args:
        b: ``(T, ...)``.
        f: the factors between neighboring steps, ``(T - 1, ...)``.
    """
    steps = len(b)
    h, factors = (
        pad_end(x, missing_steps(steps, LOOPED), dim=-x.dim()).unflatten(0, (-1, LOOPED)).unbind(1)
        for x in (b, torch.cat([torch.zeros_like(b[:1]), f]))
    )
    states, products = [h[0]], [factors[0]]
    for k in range(1, LOOPED):
        states.append(torch.addcmul(h[k], factors[k], states[-1]))
        products.append(factors[k] * products[-1])
    if steps > LOOPED:
        ends = _solve_for_any_length(states[-1], products[-1][1:])
        before = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
        states = [torch.addcmul(h, product, before) for h, product in zip(states, products, strict=True)]
    return torch.stack(states, dim=1).flatten(0, 1)[:steps]


def real_factors_and_inputs(f: Tensor, b: Tensor, padding: PaddingLike) -> tuple[Tensor, Tensor]:
    """``f`` and ``b (T, B, C)`` in the dtype of the states; at padding f is 1 and b is 0, which leaves h as it is."""
    padding = Padding.of(padding)
    dtype = accumulation_dtype(b)
    f, b = f.to(dtype), b.to(dtype)
    if padding.mask is None:
        return f, b
    padded = padding.mask.t()[..., None]
    return f.masked_fill(padded, 1), b.masked_fill(padded, 0)


class RecurrentState(NamedTuple):
    """The state of generation after the steps so far."""

    h: Tensor  # (B, C), fp32 if the inputs are half precision


def linear_recurrence_step(
    f: Tensor, b: Tensor, state: RecurrentState | None, *, padding: PaddingLike = None
) -> tuple[Tensor, RecurrentState]:
    """One step of :func:`linear_recurrence_reference`: its arguments with T = 1; the state is None before the first.

    Returns:
        ``(1, B, C)`` in the dtype of ``b``, and the state after this step.
    """
    factors, h = real_factors_and_inputs(f, b, padding)
    if state is not None:
        h = torch.addcmul(h, factors, state.h)
    return h.to(b.dtype), RecurrentState(h.squeeze(0))

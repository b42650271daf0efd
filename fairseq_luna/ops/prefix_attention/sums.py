"""Prefix sums over blocks of time and their gradients, which are such sums too, so that every derivative exists.

All tensors are cut: ``(B H blocks, C, any size)``, zero behind the last step.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import full_precision, running_sum

# With one product by a triangular matrix: faster than a cumulative sum, but quadratic in the number of blocks.
MOST_BLOCKS_SUMMED_AT_ONCE = 128


class PrefixSums(torch.autograd.Function):
    """``q_t`` times the sum over ``j <= t`` of ``k_j v_j^T``, and what the gradients can use again.

    The gradient is written by hand because autograd would keep the C x C products and copy every gradient once more.
    """

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, known: Tensor | None, blocks: int
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """``known``: the third result for ``v, k``, transposed, which is that for ``k, v``; None computes it."""
        with full_precision(q):
            inside = _products(q, k)
            total = torch.bmm(inside, v)
            if blocks == 1:
                return total, inside, None
            earlier = _states(k, v, blocks) if known is None else known
            # The products would take as much memory as q: they are computed again.
            total.baddbmm_(q, earlier, alpha=blocks * q.shape[1])
            return total, None, earlier if known is None else None

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor | None, ...]) -> None:
        *tensors, known, ctx.blocks = inputs
        _, inside, earlier = output
        ctx.save_for_backward(*tensors, inside, earlier if known is None else known)
        ctx.mark_non_differentiable(*(x for x in output[1:] if x is not None))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None, None
        # A graph for the next derivative costs time even if it is not asked for.
        gradients: Any = _Gradients.apply if torch.is_grad_enabled() else _Gradients.forward
        return *gradients(gradient, *ctx.saved_tensors, ctx.blocks), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, ...]:
        return as_one_batch(PrefixSums, info.batch_size, in_dims, inputs)


class _Gradients(torch.autograd.Function):
    """Those of q, k and v, for the gradient g of the sums.

    With ``g v^T`` masked above the diagonal, each is a sum inside a block plus a product with a state: that of the
    earlier blocks for q, that of the later blocks for k and v. With F for the sums, the gradients in the directions
    a, b, c are ``g . (F(a, k, v) + F(q, b, v) + F(q, k, c))``: what differentiates F differentiates them.
    """

    @staticmethod
    def forward(
        g: Tensor, q: Tensor, k: Tensor, v: Tensor, inside: Tensor | None, earlier: Tensor | None, blocks: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        with full_precision(g):
            of_inside = _products(g, v)
            inside = _products(q, k) if inside is None else inside
            of_q, of_k, of_v = torch.bmm(of_inside, k), torch.bmm(of_inside.mT, q), torch.bmm(inside.mT, g)
            if blocks == 1:
                return of_q, of_k, of_v
            steps = blocks * g.shape[1]
            if earlier is None:
                earlier = _states(k, v, blocks)
            later = _states(q, g, blocks, later=True)
            return (
                of_q.baddbmm_(g, earlier.mT, alpha=steps),
                of_k.baddbmm_(v, later.mT, alpha=steps),
                of_v.baddbmm_(k, later, alpha=steps),
            )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:4])
        ctx.blocks = inputs[-1]

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor | None, ...]:
        g, q, k, v = ctx.saved_tensors
        directions = (a, k, v), (q, b, v), (q, k, c)
        of_g = sum(PrefixSums.apply(*each, None, ctx.blocks)[0] for each in directions)
        first, second, third = (_Gradients.apply(g, *each, None, None, ctx.blocks) for each in directions)
        return of_g, second[0] + third[0], first[1] + third[1], first[2] + second[2], None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, ...]:
        return as_one_batch(_Gradients, info.batch_size, in_dims, inputs)


def as_one_batch(function: Any, size: int, in_dims: tuple[int | None, ...], inputs: Any) -> tuple[Any, ...]:
    """``function`` of ``size`` cases, whose dimension is joined with that of the blocks: a rule for ``torch.vmap``."""

    def joined(x: Tensor | None, dim: int | None) -> Tensor | None:
        if x is None:
            return None
        return (x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)

    *tensors, blocks = inputs
    outputs = function.apply(*(joined(x, dim) for x, dim in zip(tensors, in_dims, strict=False)), blocks)
    apart = tuple(None if y is None else y.unflatten(0, (size, len(y) // size)) for y in outputs)
    return apart, tuple(None if y is None else 0 for y in outputs)


def _products(x: Tensor, y: Tensor) -> Tensor:
    """``x_t . y_j`` within each block, 0 for j > t: ``(B H blocks, C, C)``."""
    return torch.bmm(x, y.mT).tril_()


def _states(k: Tensor, v: Tensor, blocks: int, *, later: bool = False) -> Tensor:
    """For each block, the sum of ``k_j v_j^T`` before it, or after it, divided by the number of all steps.

    After this division a sum is at most a mean, so that long sequences cannot overflow it.
    """
    states = torch.bmm(k.mT, v).div_(blocks * k.shape[1])
    by_block = states.view(len(states) // blocks, blocks, states.shape[1] * states.shape[2])
    if blocks <= MOST_BLOCKS_SUMMED_AT_ONCE:
        ones = by_block.new_ones(blocks, blocks)
        sums = (ones.triu_(1) if later else ones.tril_(-1)) @ by_block
    elif later:
        sums = F.pad(running_sum(by_block[:, 1:].flip(1), 1).flip(1), (0, 0, 0, 1))
    else:
        sums = F.pad(running_sum(by_block[:, :-1], 1), (0, 0, 1, 0))
    return sums.view_as(states)

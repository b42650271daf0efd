"""Causal linear attention as a running mean: ``y_t = q_t`` times the mean of ``k_j v_j^T`` over the steps up to t.

Luna's causal attention, kernel attention and mixed chunk attention are built from the functions of this file.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import block_count, cut_into_blocks, join_blocks
from .dtypes import accumulation_dtype, full_precision, running_sum
from .function_outputs import written_in_place
from .padding import Padding, PaddingLike, computed_once


def prefix_attention_reference(q: Tensor, k: Tensor, v: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """Causal linear attention as a running mean, in a loop over the steps.

        y_t = (1/n_t) q_t (sum over real steps j <= t of k_j v_j^T)

    where ``n_t`` is the number of real steps up to ``t``. Padded steps are neither added nor counted, at any position;
    before the first real step the output is zero. Source: the function f of Luna's causal attention
    (arXiv 2106.01540, section 3.4).

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        padding: ``(B, T)`` bool, True = padding; None = no padding.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    batch, heads = q.shape[:2]
    dtype = accumulation_dtype(q)
    mean = q.new_zeros(batch, heads, k.shape[-1], v.shape[-1], dtype=dtype)
    count = q.new_zeros(batch, 1, 1, 1, dtype=dtype)
    outputs = []
    for t, (q_t, k_t, v_t) in enumerate(zip(*(x.to(dtype).unbind(2) for x in (q, k, v)), strict=True)):
        real = torch.ones_like(count)
        if padding_mask is not None:
            real = (~padding_mask[:, t]).to(dtype).view(batch, 1, 1, 1)
        count = count + real
        mean = mean + real * (k_t[..., :, None] * v_t[..., None, :] - mean) / count.clamp(min=1)
        outputs.append((q_t[:, :, None] @ mean)[:, :, 0])
    return torch.stack(outputs, dim=2).to(q.dtype)


def prefix_attention(
    q: Tensor, k: Tensor, v: Tensor, *, padding: PaddingLike = None, block_length: int | None = None
) -> Tensor:
    """The same function as :func:`prefix_attention_reference`, by matrix products inside blocks of time.

    A D x E state connects the blocks. With blocks of C steps it takes O(T C + T D E / C) memory; one state per step
    would take O(T D E).

    Args:
        q, k, v, padding: as in :func:`prefix_attention_reference`.
        block_length: C, the largest number of steps in a block; None chooses it by shape. It affects the cost, not the
            result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(q)
    weight = step_weights(padding, q.shape[2], dtype, q.device)
    k = padding.zero(k)
    return sums_and_states(q * weight, k.to(dtype), v.to(dtype), block_length=block_length)[0].to(q.dtype)


def sums_and_states(
    q: Tensor, k: Tensor, v: Tensor, *, states: Tensor | None = None, block_length: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """``q_t`` times the sum over ``j <= t`` of ``k_j v_j^T``; :func:`prefix_attention` if ``q`` is weighted.

    Args:
        q: ``(B, H, T, D)``, fp32 or fp64, times :func:`step_weights`.
        k: ``(B, H, T, D)`` of the same dtype, 0 at padding; ``v`` may be 0 there instead.
        v: ``(B, H, T, E)`` of the same dtype.
        states: the second result of the call with ``v`` in place of ``k`` and ``k`` in place of ``v``, transposed:
            these are the states of this call. None computes them.
        block_length: as in :func:`prefix_attention`.

    Returns:
        ``(B, H, T, E)``, and the states before each block, or None if there is one block.
    """
    blocks = block_count(k, v, block_length)
    total, *kept = PrefixSums.apply(*(cut_into_blocks(x, blocks) for x in (q, k, v)), states, blocks)
    return join_blocks(total, blocks, q), kept[0] if kept and blocks > 1 else None


@computed_once
def step_counts(padding: Padding, steps: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The number of real steps up to each step, at least 1: ``(1 or B, 1, T, 1)``."""
    if padding.mask is None:
        return torch.arange(1, steps + 1, device=device, dtype=dtype).view(1, 1, steps, 1)
    return padding.counts.clamp(min=1).to(dtype)[:, None, :, None]


@computed_once
def step_weights(padding: Padding, steps: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1 / :func:`step_counts`."""
    return step_counts(padding, steps, dtype, device).reciprocal()


# Blocks whose states are summed by one product with a triangular matrix: faster than a cumulative sum, but quadratic in
# the number of blocks.
MOST_BLOCKS_SUMMED_AT_ONCE = 128


class PrefixSums(torch.autograd.Function):
    """``q_t`` times the sum over ``j <= t`` of ``k_j v_j^T``, and the tensors that the gradients use again.

    All tensors are cut into blocks: ``(B H blocks, C, any size)``, zero after the last step. The gradient is written
    by hand because autograd would keep the C x C products and copy every gradient once more. It consists of such sums
    too, so that every derivative exists.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, given_states: Tensor | None, blocks: int) -> tuple[Tensor, ...]:
        """Return the sums, and the products inside a single block or the states before each of several blocks.

        ``given_states`` are these states, if they are known, which are not returned; None computes them. No output is
        None, which torch.compile cannot trace in torch 2.6.
        """
        with full_precision(q):
            inside = _causal_products(q, k)
            total = torch.bmm(inside, v)
            if blocks == 1:
                return total, inside
            earlier = _block_states(k, v, blocks) if given_states is None else given_states
            # The products would take as much memory as q: the gradient computes them again.
            total = written_in_place(total.baddbmm_(q, earlier, alpha=blocks * q.shape[1]))
            return (total, earlier) if given_states is None else (total,)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, given_states, ctx.blocks = inputs
        inside = output[1] if ctx.blocks == 1 else None
        earlier = output[1] if ctx.blocks > 1 and given_states is None else given_states
        ctx.save_for_backward(*tensors, inside, earlier)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None, None
        # A graph for the next derivative costs time even if nobody uses it.
        gradients: Any = _Gradients.apply if torch.is_grad_enabled() else _Gradients.forward
        return *gradients(gradient, *ctx.saved_tensors, ctx.blocks), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, ...]:
        return vmap_rule(PrefixSums, info.batch_size, in_dims, inputs)


class _Gradients(torch.autograd.Function):
    """The gradients of q, k and v, for the gradient g of the sums.

    With ``g v^T`` masked above the diagonal, each is a sum inside a block plus a product with a state: for q the state
    of the earlier blocks, for k and v the state of the later blocks. With F for the sums, the gradients in the
    directions a, b, c are ``g . (F(a, k, v) + F(q, b, v) + F(q, k, c))``: the functions that differentiate F
    differentiate them.
    """

    @staticmethod
    def forward(
        g: Tensor, q: Tensor, k: Tensor, v: Tensor, inside: Tensor | None, earlier: Tensor | None, blocks: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        with full_precision(g):
            d_inside = _causal_products(g, v)
            inside = _causal_products(q, k) if inside is None else inside
            dq, dk, dv = torch.bmm(d_inside, k), torch.bmm(d_inside.mT, q), torch.bmm(inside.mT, g)
            if blocks == 1:
                return dq, dk, dv
            steps = blocks * g.shape[1]
            if earlier is None:
                earlier = _block_states(k, v, blocks)
            later = _block_states(q, g, blocks, later=True)
            return (
                dq.baddbmm_(g, earlier.mT, alpha=steps),
                dk.baddbmm_(v, later.mT, alpha=steps),
                dv.baddbmm_(k, later, alpha=steps),
            )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:4])
        ctx.blocks = inputs[-1]

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor | None, ...]:
        g, q, k, v = ctx.saved_tensors
        directions = (a, k, v), (q, b, v), (q, k, c)
        dg = sum(PrefixSums.apply(*each, None, ctx.blocks)[0] for each in directions)
        first, second, third = (_Gradients.apply(g, *each, None, None, ctx.blocks) for each in directions)
        return dg, second[0] + third[0], first[1] + third[1], first[2] + second[2], None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, ...]:
        return vmap_rule(_Gradients, info.batch_size, in_dims, inputs)


def vmap_rule(function: Any, size: int, in_dims: tuple[int | None, ...], inputs: Any) -> tuple[Any, ...]:
    """A rule for ``torch.vmap``: ``function`` of ``size`` cases at once, as if the cases were further blocks."""

    def with_cases_as_blocks(x: Tensor | None, dim: int | None) -> Tensor | None:
        if x is None:
            return None
        return (x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)

    *tensors, blocks = inputs
    outputs = function.apply(*(with_cases_as_blocks(x, dim) for x, dim in zip(tensors, in_dims, strict=False)), blocks)
    apart = tuple(None if y is None else y.unflatten(0, (size, len(y) // size)) for y in outputs)
    return apart, tuple(None if y is None else 0 for y in outputs)


def _causal_products(x: Tensor, y: Tensor) -> Tensor:
    """``x_t . y_j`` within each block, 0 for j > t: ``(B H blocks, C, C)``."""
    return torch.bmm(x, y.mT).tril_()


def _block_states(k: Tensor, v: Tensor, blocks: int, *, later: bool = False) -> Tensor:
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


STEPS_SUMMED_AT_ONCE = 4096


class PrefixMean(NamedTuple):
    """The state of generation: the mean of ``k_j v_j^T`` over the real steps so far."""

    mean: Tensor  # (B, H, D, E), fp32 if the inputs are half precision
    steps: Tensor  # (B,), in the same dtype: the number of these steps


def initial_prefix_mean(k: Tensor, v: Tensor) -> PrefixMean:
    """The state before the first step, for keys ``k (B, H, any T, D)`` and values ``v (B, H, any T, E)``."""
    batch, heads = k.shape[:2]
    dtype = accumulation_dtype(k)
    return PrefixMean(
        mean=k.new_zeros(batch, heads, k.shape[-1], v.shape[-1], dtype=dtype),
        steps=k.new_zeros(batch, dtype=dtype),
    )


def prefix_mean_of(k: Tensor, v: Tensor, *, padding: PaddingLike = None) -> PrefixMean:
    """The state after a whole sequence ``k (B, H, T, D)`` and ``v (B, H, T, E)``."""
    padding = Padding.of(padding)
    batch, _, steps, _ = k.shape
    dtype = accumulation_dtype(k)
    k, v = padding.zero(k.to(dtype)), v.to(dtype)
    real_steps = k.new_full((batch,), steps) if padding.mask is None else padding.lengths.to(dtype)
    weight = real_steps.clamp(min=1).reciprocal().view(batch, 1, 1, 1)
    with full_precision(k):
        return PrefixMean(mean=_sum_of_products(k * weight, v), steps=real_steps)


def _sum_of_products(k: Tensor, v: Tensor) -> Tensor:
    """The sum over time of ``k_j v_j^T``: ``(B, H, D, E)``.

    Some CPU libraries add the products of a narrow matrix one after another, with an error of 1.3e-5 in fp32 after
    100,000 steps: long sequences are therefore summed in parts.
    """
    parts = 1 if torch.compiler.is_compiling() else k.shape[2] // STEPS_SUMMED_AT_ONCE
    if parts < 2:
        return k.mT @ v
    whole = parts * STEPS_SUMMED_AT_ONCE
    k_parts, v_parts = (x[:, :, :whole].unflatten(2, (parts, STEPS_SUMMED_AT_ONCE)) for x in (k, v))
    return (k_parts.mT @ v_parts).sum(2) + k[:, :, whole:].mT @ v[:, :, whole:]


def update_prefix_mean(k: Tensor, v: Tensor, state: PrefixMean, *, padding: PaddingLike = None) -> PrefixMean:
    """Add one step to the state; the output of :func:`prefix_attention_reference` is ``q @ mean`` of the new state.

    Args:
        k: ``(B, H, 1, D)``, in the dtype of the mean.
        v: ``(B, H, 1, E)``, which may be half precision.
        state: the state after the previous steps.
        padding: ``(B, 1)`` bool, True = padding: the state of this row does not change.

    Returns:
        The state after this step.
    """
    padding = Padding.of(padding)
    if padding.mask is None:
        steps = state.steps + 1
        weight = steps.reciprocal()
    else:
        padded = padding.mask[:, 0]
        steps = state.steps + (~padded).to(state.steps.dtype)
        weight = steps.clamp(min=1).reciprocal().masked_fill(padded, 0)
    # No transpose: onnxruntime would move it after the product, which is much larger.
    mean = torch.lerp(state.mean, k.squeeze(-2).unsqueeze(-1) * v, weight.view(-1, 1, 1, 1))
    return PrefixMean(mean=mean, steps=steps)

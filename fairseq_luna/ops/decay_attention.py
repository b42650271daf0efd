"""Linear attention whose sum decays: ``S_t = exp(g_t) S_{t-1} + k_t v_t^T``, ``y_t = q_t^T S_t``."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import block_count, cut_into_blocks, join_blocks
from .dtypes import accumulation_dtype, full_precision, running_sum
from .function_outputs import written_in_place
from .padding import Padding, PaddingLike
from .prefix_attention import vmap_rule


def decay_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = True,
) -> Tensor:
    """Linear attention that forgets: each step multiplies the sum of the earlier ones by ``exp(g_t)``.

        S_t = exp(g_t) S_{t-1} + k_t v_t^T,     y_t = q_t^T S_t

    Thus step j has for step i the weight ``q_i . k_j exp(G_i - G_j)``, where G is the running sum of g. If not causal,
    every j has one, ``q_i . k_j exp(-|G_i - G_j|)``. At padding g and k are 0. Source: retention (arXiv 2307.08621,
    equation 6) with a constant g, Mamba-2 (arXiv 2405.21060, section 3.2) with one g for each step.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``, or broadcastable to it.
        padding: ``(B, T)`` bool, True = padding, anywhere; None = no padding.
        causal: no step sees a later one.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(q)
    g = log_decay.to(dtype).expand(q.shape[:3])
    keys, values, queries = k.to(dtype), v.to(dtype), q.to(dtype)
    if padding_mask is not None:
        g = g.masked_fill(padding_mask[:, None], 0)
        keys = keys.masked_fill(padding_mask[:, None, :, None], 0)
    if not causal:
        total = g.double().cumsum(2)  # differences of fp64 keep the digits of fp32
        decays = (total[..., :, None] - total[..., None, :]).abs().neg().exp().to(dtype)
        return ((queries @ keys.mT * decays) @ values).to(q.dtype)
    state = keys.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    outputs = []
    for q_t, k_t, v_t, g_t in zip(*(x.unbind(2) for x in (queries, keys, values, g)), strict=True):
        state = g_t.exp()[..., None, None] * state + k_t[..., :, None] * v_t[..., None, :]
        outputs.append((q_t[:, :, None] @ state)[:, :, 0])
    return torch.stack(outputs, dim=2).to(q.dtype)


def decay_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = True,
    block_length: int | None = None,
) -> Tensor:
    """The same function as :func:`decay_attention_reference`, linear in T: matrix products inside blocks of time.

    A D x E state, which decays, connects the blocks.

    Args:
        q, k, v, log_decay, padding, causal: as in :func:`decay_attention_reference`.
        block_length: the largest number of steps in a block; None chooses it by shape. It affects the cost, not the
            result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(q)
    g = log_decay.to(dtype).expand(q.shape[:3])
    k, g = padding.zero(k), padding.zero(g)
    blocks = block_count(k, v, block_length)
    queries, keys, values, g = (cut_into_blocks(x.to(dtype), blocks) for x in (q, k, v, g[..., None]))
    out = DecayedSums.apply(queries, keys, values, g, blocks)[0]
    if not causal:
        own = (queries * keys).sum(-1, keepdim=True) * values  # counted in both directions
        out = out + sums_of_later_steps(queries, keys, values, g, blocks) - own
    return join_blocks(out, blocks, q).to(q.dtype)


# Blocks whose states are summed by one product with a matrix of their decays, which is quadratic in their number.
MOST_BLOCKS_SUMMED_AT_ONCE = 128


# Query elements per call on a CPU, so that temporaries stay in its cache.
CPU_CACHE_NUMEL = 2**18


class DecayedSums(torch.autograd.Function):
    """``q_t`` times the sum over ``j <= t`` of ``exp(G_t - G_j) k_j v_j^T``, and the states before each block.

    All tensors are cut into blocks: ``(B H blocks, C, any size)``, zero after the last step. G is the running sum of
    ``g (B H blocks, C, 1)``. An exponent is the sum of the g of its steps, within a block, or of the sums of blocks:
    the difference of two running sums would lose the digits that they have in common. No exponent is above 0, so that
    decays do not overflow. The gradients are such sums too, so that every derivative exists.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, g: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
        with full_precision(q):
            out, earlier = apply_to_some_heads(_block_sums, blocks, q, k, v, g)
            return written_in_place(out), earlier

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.blocks = inputs
        ctx.save_for_backward(*tensors, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        q, k, v, g, earlier = ctx.saved_tensors
        if torch.is_grad_enabled():
            dq = DecayedSums.apply(gradient, v, k, g, ctx.blocks)[0]
            dk = sums_of_later_steps(v, gradient, q, g, ctx.blocks)
            dv = sums_of_later_steps(k, q, gradient, g, ctx.blocks)
        else:
            with full_precision(q):
                dq, dk, dv = apply_to_some_heads(_gradients, ctx.blocks, gradient, q, k, v, g, earlier)
        if not ctx.needs_input_grad[3]:
            return dq, dk, dv, None, None
        dtotal = (q * dq).sum(-1, keepdim=True) - (k * dk).sum(-1, keepdim=True)
        return dq, dk, dv, sums_to_end(dtotal, ctx.blocks), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, ...]:
        return vmap_rule(DecayedSums, info.batch_size, in_dims, inputs)


def sums_of_later_steps(q: Tensor, k: Tensor, v: Tensor, g: Tensor, blocks: int) -> Tensor:
    """``q_t`` times the sum over ``j >= t`` of ``exp(G_j - G_t) k_j v_j^T``.

    It is the sum over earlier steps of the reversed sequence, with the decay of the next step.
    """
    following = F.pad(g.view(-1, blocks * g.shape[1], 1)[:, 1:], (0, 0, 0, 1)).view_as(g)
    reversed_inputs = (reverse_steps(x, blocks) for x in (q, k, v, following))
    return reverse_steps(DecayedSums.apply(*reversed_inputs, blocks)[0], blocks)


def sums_to_end(x: Tensor, blocks: int) -> Tensor:
    """The sum of ``x`` from each step to the last one: the gradient of g for the gradient x of its running sum G."""
    summed = running_sum(reverse_steps(x, blocks).view(-1, blocks * x.shape[1], x.shape[2]), 1)
    return reverse_steps(summed.view_as(x), blocks)


def reverse_steps(x: Tensor, blocks: int) -> Tensor:
    """The steps of ``x`` in the opposite order."""
    return x.reshape(-1, blocks * x.shape[1], x.shape[2]).flip(1).view_as(x)


def apply_to_some_heads(function: Callable[..., tuple[Tensor, ...]], blocks: int, *tensors: Tensor) -> list[Tensor]:
    """``function(*tensors, blocks)``, which treats heads separately; on a CPU for some heads at a time."""
    if tensors[0].device.type != "cpu" or torch.compiler.is_compiling():
        return [*function(*tensors, blocks)]
    size = blocks * max(1, CPU_CACHE_NUMEL // (blocks * tensors[0].shape[1:].numel()))
    parts = (function(*part, blocks) for part in zip(*(x.split(size) for x in tensors), strict=True))
    return [torch.cat(results) for results in zip(*parts, strict=True)]


def _block_sums(q: Tensor, k: Tensor, v: Tensor, g: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
    inside, decays = torch.bmm(q, k.mT), decays_between(g)
    out = torch.bmm(inside.mul_(decays).tril_(), v)
    if blocks == 1:
        return out, out[..., :0]  # no states
    earlier = _carried_states(torch.bmm((k * decay_to_block_end(decays)).mT, v), g.sum(1), blocks)
    return out.baddbmm_(q * decay_from_block_start(g), earlier), earlier


def _gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, earlier: Tensor, blocks: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v: the same sums as with a graph, but products and states are computed once."""
    decays = decays_between(g).tril_()
    inside, d_inside = torch.bmm(q, k.mT).mul_(decays), torch.bmm(gradient, v.mT).mul_(decays)
    dq, dk, dv = torch.bmm(d_inside, k), torch.bmm(d_inside.mT, q), torch.bmm(inside.mT, gradient)
    if blocks == 1:
        return dq, dk, dv
    start, end = decay_from_block_start(g), decay_to_block_end(decays)
    later = _carried_states(torch.bmm((q * start).mT, gradient), g.sum(1), blocks, later=True)
    return (
        dq.baddbmm_(gradient * start, earlier.mT),
        dk.baddbmm_(v * end, later.mT),
        dv.baddbmm_(k * end, later),
    )


def decays_between(g: Tensor) -> Tensor:
    """``exp(G_t - G_j)`` of each block, ``(B H blocks, C, C)``; undefined for later j."""
    if g.device.type != "cpu" or torch.compiler.is_compiling() or torch.is_grad_enabled():
        return clamped_exp(sums_between(g))
    # In fp64 a difference has all digits of fp32, and takes a CPU half the time of the sums.
    total = g.clamp(min=-60.0).cumsum(1, dtype=torch.float64)
    return clamped_exp(torch.sub(total, total.mT, out=g.new_empty(len(g), g.shape[1], g.shape[1])))


def sums_between(g: Tensor, *, offset: int = 1) -> Tensor:
    """The sum of ``g (N, C, 1)`` over the steps from ``j + offset`` up to t, ``(N, C, C)``: 0 if there are none.

    Its error is relative to the sum itself. The error of a difference, G_t - G_j, would be relative to G_t, so that a
    strong decay would blur all steps that follow it.
    """
    return g.expand(-1, -1, g.shape[1]).contiguous().tril_(-offset).cumsum_(1)


def decay_to_block_end(decays: Tensor) -> Tensor:
    """The decay from each step to the end of its block, ``(B H blocks, C, 1)``, from :func:`decays_between`."""
    return decays[:, -1:].mT


def decay_from_block_start(g: Tensor) -> Tensor:
    """The decay from the end of the previous block to each step, ``exp(G_t)``: ``(B H blocks, C, 1)``."""
    return clamped_exp(g.cumsum(1))


def clamped_exp(exponents: Tensor) -> Tensor:
    """``exp`` in place, with results from 1e-26 to 1.

    Smaller factors would make denormal products, which take a CPU several times as long. The bounds are written as
    literals: torch.onnx and torch.compile cannot read a module's constants here.
    """
    return exponents.clamp_(-60.0, 0.0).exp_()


def _carried_states(states: Tensor, totals: Tensor, blocks: int, *, later: bool = False) -> Tensor:
    """For each block, the decayed sum of the ``states (B H blocks, D, E)`` before it, or of the later ones.

    ``totals (B H blocks, 1)`` are the sums of g over each block.
    """
    by_block = states.view(-1, blocks, states.shape[1] * states.shape[2]), totals.view(-1, blocks, 1)
    groups = list(zip(*(x.split(MOST_BLOCKS_SUMMED_AT_ONCE, dim=1) for x in by_block), strict=True))
    results, carried = [], None
    for own, total in reversed(groups) if later else groups:
        before = F.pad(total[:, :-1], (0, 0, 1, 0))
        decays = clamped_exp(sums_between(before, offset=2)).tril_(-1)
        sums = (decays.mT if later else decays) @ own
        if carried is not None:
            passed = reverse_steps(F.pad(total[:, 1:], (0, 0, 0, 1)), 1) if later else before
            decay = decay_from_block_start(passed)
            sums.addcmul_(reverse_steps(decay, 1) if later else decay, carried)
        edge = slice(0, 1) if later else slice(-1, None)
        carried = torch.addcmul(own[:, edge], total[:, edge].exp(), sums[:, edge])
        results.append(sums)
    all_sums = results[0] if len(results) == 1 else torch.cat(results[::-1] if later else results, dim=1)
    return all_sums.view_as(states)


class DecayState(NamedTuple):
    """The state of generation: the decayed sum of ``k_j v_j^T`` over the real steps so far."""

    sum: Tensor  # (B, H, D, E), fp32 if the inputs are half precision


def decay_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: DecayState | None,
    *,
    padding: PaddingLike = None,
) -> tuple[Tensor, DecayState]:
    """One step of causal :func:`decay_attention_reference`: its arguments with T = 1.

    Where the step is padding the state does not change; it is None before the first step.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``q``, and the state after this step.
    """
    padding = Padding.of(padding)
    out_dtype, dtype = q.dtype, accumulation_dtype(k)
    q, k, v, log_decay = (x.to(dtype) for x in (q, k, v, log_decay))
    k, log_decay = padding.zero(k), padding.zero(log_decay)
    total = k.mT * v
    if state is not None:
        total = torch.addcmul(total, log_decay.exp()[..., None], state.sum)
    with full_precision(q):
        return (q @ total).to(out_dtype), DecayState(total)

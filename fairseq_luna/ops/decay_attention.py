"""Linear attention whose sum decays: ``S_t = exp(g_t) S_{t-1} + k_t v_t^T``, ``y_t = q_t^T S_t``."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import block_count, cut, joined
from .dtypes import accumulation_dtype, full_precision, running_sum
from .padding import Padding, PaddingLike
from .prefix_attention import as_one_batch


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
    all j have one, ``q_i . k_j exp(-|G_i - G_j|)``. At padding g and k are 0. Source: retention (arXiv 2307.08621,
    equation 6) with a constant g, Mamba-2 (arXiv 2405.21060, section 3.2) with one for each step.

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
        total = g.double().cumsum(2)  # whose differences keep the digits of fp32
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
    """Linear attention that forgets, linear in T; specified by :func:`decay_attention_reference`.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``, or broadcastable to it.
        padding: of the steps, anywhere.
        causal: no step sees a later one.
        block_length: C, the most steps in a block; None chooses it by shape. It affects cost, not the result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(q)
    g = log_decay.to(dtype).expand(q.shape[:3])
    k, g = padding.zero(k), padding.zero(g)
    blocks = block_count(k, v, block_length)
    queries, keys, values, g = (cut(x.to(dtype), blocks) for x in (q, k, v, g[..., None]))
    out = DecayedSums.apply(queries, keys, values, g, blocks)[0]
    if not causal:
        own = (queries * keys).sum(-1, keepdim=True) * values  # which both have
        out = out + sums_of_later(queries, keys, values, g, blocks) - own
    return joined(out, blocks, q).to(q.dtype)


# With one product by a matrix of their decays, quadratic in the number of blocks.
MOST_BLOCKS_SUMMED_AT_ONCE = 128


# Numbers of the queries of the heads that a CPU goes through together: what is made of them stays in its cache.
NUMBERS_AT_ONCE = 2**18


class DecayedSums(torch.autograd.Function):
    """``q_t`` times the sum over ``j <= t`` of ``exp(G_t - G_j) k_j v_j^T``, and the states before each block.

    G is the running sum of ``g (B H blocks, C, 1)``. An exponent is the sum of the g of its steps, within a block, or
    of the sums of blocks: the difference of two running sums would lose the digits that they have in common. None is
    above 0: decays do not overflow.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, g: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
        with full_precision(q):
            out, earlier = some_heads_at_once(_sums, blocks, q, k, v, g)
            return out, earlier

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.blocks = inputs
        ctx.save_for_backward(*tensors, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        q, k, v, g, earlier = ctx.saved_tensors
        if torch.is_grad_enabled():
            of_q = DecayedSums.apply(gradient, v, k, g, ctx.blocks)[0]
            of_k = sums_of_later(v, gradient, q, g, ctx.blocks)
            of_v = sums_of_later(k, q, gradient, g, ctx.blocks)
        else:
            with full_precision(q):
                of_q, of_k, of_v = some_heads_at_once(_gradients, ctx.blocks, gradient, q, k, v, g, earlier)
        if not ctx.needs_input_grad[3]:
            return of_q, of_k, of_v, None, None
        of_total = (q * of_q).sum(-1, keepdim=True) - (k * of_k).sum(-1, keepdim=True)
        return of_q, of_k, of_v, sums_to_end(of_total, ctx.blocks), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, ...]:
        return as_one_batch(DecayedSums, info.batch_size, in_dims, inputs)


def sums_of_later(q: Tensor, k: Tensor, v: Tensor, g: Tensor, blocks: int) -> Tensor:
    """``q_t`` times the sum over ``j >= t`` of ``exp(G_j - G_t) k_j v_j^T``: backwards, with the next step's decay."""
    following = F.pad(g.view(-1, blocks * g.shape[1], 1)[:, 1:], (0, 0, 0, 1)).view_as(g)
    return backwards(DecayedSums.apply(*(backwards(x, blocks) for x in (q, k, v, following)), blocks)[0], blocks)


def sums_to_end(x: Tensor, blocks: int) -> Tensor:
    """The sum of ``x`` from each step on: the gradient of g, which is a part of G there, from that of G."""
    summed = running_sum(backwards(x, blocks).view(-1, blocks * x.shape[1], x.shape[2]), 1)
    return backwards(summed.view_as(x), blocks)


def backwards(x: Tensor, blocks: int) -> Tensor:
    """The steps of ``x`` in the opposite order."""
    return x.reshape(-1, blocks * x.shape[1], x.shape[2]).flip(1).view_as(x)


def some_heads_at_once(function: Callable[..., tuple[Tensor, ...]], blocks: int, *tensors: Tensor) -> list[Tensor]:
    """The results of ``function``, of tensors and ``blocks``, in which heads do not meet."""
    if tensors[0].device.type != "cpu" or torch.compiler.is_compiling():
        return [*function(*tensors, blocks)]
    size = blocks * max(1, NUMBERS_AT_ONCE // (blocks * tensors[0].shape[1:].numel()))
    parts = (function(*part, blocks) for part in zip(*(x.split(size) for x in tensors), strict=True))
    return [torch.cat(results) for results in zip(*parts, strict=True)]


def _sums(q: Tensor, k: Tensor, v: Tensor, g: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
    inside, decays = torch.bmm(q, k.mT), decays_between(g)
    out = torch.bmm(inside.mul_(decays).tril_(), v)
    if blocks == 1:
        return out, out[..., :0]  # no states
    earlier = _carried(torch.bmm((k * until_end(decays)).mT, v), g.sum(1), blocks)
    return out.baddbmm_(q * from_start(g), earlier), earlier


def _gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, earlier: Tensor, blocks: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v: the same sums as with a graph, whose products and states are made once."""
    decays = decays_between(g).tril_()
    inside, of_inside = torch.bmm(q, k.mT).mul_(decays), torch.bmm(gradient, v.mT).mul_(decays)
    of_q, of_k, of_v = torch.bmm(of_inside, k), torch.bmm(of_inside.mT, q), torch.bmm(inside.mT, gradient)
    if blocks == 1:
        return of_q, of_k, of_v
    start, end = from_start(g), until_end(decays)
    later = _carried(torch.bmm((q * start).mT, gradient), g.sum(1), blocks, later=True)
    return (
        of_q.baddbmm_(gradient * start, earlier.mT),
        of_k.baddbmm_(v * end, later.mT),
        of_v.baddbmm_(k * end, later),
    )


def decays_between(g: Tensor) -> Tensor:
    """``exp(G_t - G_j)`` of each block, ``(B H blocks, C, C)``: of no use for later j, where it is 1."""
    if g.device.type != "cpu" or torch.compiler.is_compiling() or torch.is_grad_enabled():
        return exp(sums_between(g))
    # In fp64 a difference has all digits of fp32, and takes a CPU half the time of the sums.
    total = g.clamp(min=-60.0).cumsum(1, dtype=torch.float64)
    return exp(torch.sub(total, total.mT, out=g.new_empty(len(g), g.shape[1], g.shape[1])))


def sums_between(g: Tensor, *, offset: int = 1) -> Tensor:
    """The sum of ``g (N, C, 1)`` over the steps from ``j + offset`` up to t, ``(N, C, C)``: 0 if there are none.

    Its error is relative to itself. The error of a difference, G_t - G_j, would be relative to G_t, so that a strong
    decay would blur all steps that follow it.
    """
    return g.expand(-1, -1, g.shape[1]).contiguous().tril_(-offset).cumsum_(1)


def until_end(decays: Tensor) -> Tensor:
    """The decay from each step to the end of its block, ``(B H blocks, C, 1)``, of :func:`decays_between`."""
    return decays[:, -1:].mT


def from_start(g: Tensor) -> Tensor:
    """The decay from the end of the block before to each step, ``exp(G_t)``."""
    return exp(g.cumsum(1))


def exp(exponents: Tensor) -> Tensor:
    """In place, and at least 1e-26: products with less are denormal numbers, which take a CPU several times as long.

    The bounds are floats, and have no name: torch.onnx and torch.compile cannot read other ones here.
    """
    return exponents.clamp_(-60.0, 0.0).exp_()


def _carried(states: Tensor, totals: Tensor, blocks: int, *, later: bool = False) -> Tensor:
    """For each block, the decayed sum of the ``states (B H blocks, D, E)`` before it, or of the later ones.

    ``totals (B H blocks, 1)`` are the sums of g over each block.
    """
    by_block = states.view(-1, blocks, states.shape[1] * states.shape[2]), totals.view(-1, blocks, 1)
    groups = list(zip(*(x.split(MOST_BLOCKS_SUMMED_AT_ONCE, dim=1) for x in by_block), strict=True))
    found, carried = [], None
    for own, total in reversed(groups) if later else groups:
        before = F.pad(total[:, :-1], (0, 0, 1, 0))
        decays = exp(sums_between(before, offset=2)).tril_(-1)
        sums = (decays.mT if later else decays) @ own
        if carried is not None:
            passed = backwards(F.pad(total[:, 1:], (0, 0, 0, 1)), 1) if later else before
            decay = from_start(passed)
            sums.addcmul_(backwards(decay, 1) if later else decay, carried)
        edge = slice(0, 1) if later else slice(-1, None)
        carried = torch.addcmul(own[:, edge], total[:, edge].exp(), sums[:, edge])
        found.append(sums)
    joined = found[0] if len(found) == 1 else torch.cat(found[::-1] if later else found, dim=1)
    return joined.view_as(states)


class DecayState(NamedTuple):
    """The decayed sum of ``k_j v_j^T`` over the real steps so far."""

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

    Where the step is padding the state stays as it is; it is None before the first step.

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

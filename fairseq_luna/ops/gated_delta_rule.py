"""The gated delta rule: linear attention whose state decays, and in which a step replaces the value of its key."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .chunks import cut_into_blocks, default_block_length, join_blocks
from .decay_attention import (
    apply_to_some_heads,
    decay_from_block_start,
    decay_to_block_end,
    decays_between,
    sums_to_end,
)
from .dtypes import accumulation_dtype, full_precision
from .function_outputs import written_in_place
from .padding import Padding, PaddingLike
from .prefix_attention import vmap_rule


def gated_delta_rule_reference(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, *, padding: PaddingLike = None
) -> Tensor:
    """Causal linear attention that forgets, and writes only the part that its state does not yet return for the key.

        S_t = exp(g_t) (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T,     y_t = q_t^T S_t

    with q and k divided by their L2 norm, whose square is at least 1e-6. At padding g and b are 0. Source: gated
    DeltaNet (arXiv 2412.06464, equation 10). Published code divides q by sqrt(D) too.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``.
        beta: b, from 0 to 1: ``(B, H, T)``.
        padding: ``(B, T)`` bool, True = padding, anywhere; None = no padding.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``; summed in fp32 if ``v`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(v)
    state = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=dtype)
    queries, keys = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q.to(dtype), k.to(dtype)))
    outputs = []
    for t in range(v.shape[2]):
        real = v.new_ones(v.shape[0], dtype=dtype) if padding_mask is None else (~padding_mask[:, t]).to(dtype)
        real, key = real[:, None, None, None], keys[:, :, t, :, None]
        decay, strength = (real * x[:, :, t, None, None].to(dtype) for x in (log_decay, beta))
        state = decay.exp() * (state - strength * key @ (key.mT @ state))
        state = state + strength * key * v[:, :, t, None].to(dtype)
        outputs.append(queries[:, :, t, None] @ state)
    return torch.cat([v[:, :, :0].to(dtype), *outputs], dim=2).to(v.dtype)


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    *,
    padding: PaddingLike = None,
    block_length: int | None = None,
) -> Tensor:
    """The same function as :func:`gated_delta_rule_reference`, linear in T, by a triangular system in each block.

    A D x E state connects the blocks of time. With blocks of C steps it takes O(T (C + D + E) + T D (D + E) / C)
    memory.

    Args:
        q, k, v, log_decay, beta, padding: as in :func:`gated_delta_rule_reference`.
        block_length: C, the largest number of steps in a block; None chooses it by shape. It affects the cost, not the
            result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``; summed in fp32 if ``v`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(v)
    gates = (padding.zero(gate.to(dtype)) for gate in (log_decay, beta))
    steps, sizes = v.shape[2], (k.shape[-1], v.shape[-1])
    length = block_length or default_block_length(steps, *sizes)
    # A power of two: a recorded graph, which goes through the blocks one after the other, then holds for more lengths.
    blocks = 1
    while blocks * length < steps:
        blocks *= 2
    sequences = (q.to(dtype), k.to(dtype), v.to(dtype), *(gate[..., None] for gate in gates))
    inputs = (cut_into_blocks(x, blocks) for x in sequences)
    (out,) = apply_to_some_heads(lambda *tensors: GatedDelta.apply(*tensors)[:1], blocks, *inputs)
    return join_blocks(out, blocks, v).to(v.dtype)


class SavedForwardPass(NamedTuple):
    """The tensors of a forward pass that the gradients use again."""

    q: Tensor  # over its norm, as k
    k: Tensor
    over_q: Tensor  # 1 over the norm
    over_k: Tensor
    written_keys: Tensor  # b k
    decays: Tensor  # exp(G_i - G_j), C x C, 0 above the diagonal
    query_products: Tensor  # the weight of each u of the block in y, C x C
    inverse: Tensor  # of the system, C x C
    u: Tensor
    states: Tensor | None = None  # S, D x E; None if there is one block


class GatedDelta(torch.autograd.Function):
    """Outputs and :class:`SavedForwardPass` for ``q, k, v, g (.., 1), b (.., 1)`` and the number of blocks of a head.

    All tensors are cut into blocks: ``(B H blocks, C, any size)``, zero after the last step. With G the running sum of
    g in a block and S the state before it, step i writes ``b_i k_i u_i^T``, where

        u_i = v_i - exp(G_i) S^T k_i - sum over j < i of exp(G_i - G_j) k_i . k_j b_j u_j
        y_i =       exp(G_i) S^T q_i + sum over j <= i of exp(G_i - G_j) q_i . k_j b_j u_j

    Thus ``v - u`` and y are decayed sums of the same u, for the queries k and q, and have the gradients of such sums.

    The gradient is written by hand because autograd would keep the results of every step of the scan, and go through
    them in many small operations. The second derivative, which no training needs, is left to autograd.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, blocks: int) -> tuple[Tensor, ...]:
        with full_precision(v):
            out, solved = _solve_blocks(q, k, v, g, b, blocks)
            # No output is None, which torch.compile cannot trace in torch 2.6.
            return written_in_place(out), *(x for x in solved if x is not None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.blocks = inputs
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None, None, None
        q, k, v, g, b, *saved = ctx.saved_tensors
        with full_precision(v):
            solved = (
                _solve_blocks(q, k, v, g, b, ctx.blocks)[1] if torch.is_grad_enabled() else SavedForwardPass(*saved)
            )
            return *_gradients(gradient, g, b, solved, ctx.blocks), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, ...]:
        return vmap_rule(GatedDelta, info.batch_size, in_dims, inputs)


def _solve_blocks(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, blocks: int
) -> tuple[Tensor, SavedForwardPass]:
    over_q, over_k = inverse_norm(q), inverse_norm(k)
    q, k = q * over_q, k * over_k
    written = k * b
    decays = _multiply_in_place(decays_between(g), g.new_ones(v.shape[1], v.shape[1]).tril())
    read, system = (_multiply_in_place(torch.bmm(x, written.mT), decays) for x in (q, k))
    identity = torch.eye(v.shape[1], dtype=v.dtype, device=v.device).expand_as(system)
    inverse = torch.linalg.solve_triangular(system, identity, upper=False, unitriangular=True, left=False)
    if blocks == 1:
        u = torch.bmm(inverse, v)
        return torch.bmm(read, u), SavedForwardPass(q, k, over_q, over_k, written, decays, read, inverse, u, None)
    start = decay_from_block_start(g)
    u, states = _scan(v, k * -start, inverse, written * decay_to_block_end(decays), start[:, -1:], blocks)
    out = torch.bmm(read, u).baddbmm_(q * start, states)
    return out, SavedForwardPass(q, k, over_q, over_k, written, decays, read, inverse, u, states)


def _gradients(
    gradient: Tensor, g: Tensor, b: Tensor, solved: SavedForwardPass, blocks: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v, g and b.

    The gradient of v solves the transposed systems, from the last block to the first.
    """
    q, k, over_q, over_k, written, decays, read, inverse, u, states = solved
    du = torch.bmm(read.mT, gradient)
    if states is None:
        dv = torch.bmm(inverse.mT, du)
    else:
        start, end = decay_from_block_start(g), decay_to_block_end(decays)
        decayed = gradient * start
        added = torch.bmm(q.mT, decayed)
        dv, later = _scan(du, written * end, inverse.mT, k * -start, start[:, -1:], blocks, added)
    dread, dsystem = (_multiply_in_place(torch.bmm(x, u.mT), decays) for x in (gradient, dv))
    dsystem.diagonal(dim1=1, dim2=2).zero_()
    dq, dk = torch.bmm(dread, written), torch.bmm(dsystem, written)
    dwritten = torch.bmm(dread.mT, q).baddbmm_(dsystem.mT, k, alpha=-1)
    if states is not None:
        dq.baddbmm_(decayed, states.mT)
        dk.baddbmm_(dv * start, states.mT)
        dwritten.baddbmm_(u * end, later.mT)
    along_q, along_k, db = (_row_dot_products(*pair) for pair in ((q, dq), (k, dk), (k, dwritten)))
    dg = sums_to_end(along_q - along_k - b * db, blocks)
    # A change along a vector does not change the vector divided by its norm.
    dk = (dwritten * (b * over_k)).addcmul_(dk, -over_k).addcmul_(k, (along_k - b * db) * over_k)
    dq = (dq * over_q).addcmul_(q, -along_q * over_q)
    return dq, dk, dv, dg, db


def _scan(
    values: Tensor,
    read: Tensor,
    inverse: Tensor,
    written: Tensor,
    decays: Tensor,
    blocks: int,
    added: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """For each block ``u = inverse (values + read S)``, and the S before it: 0, then ``decay S + written^T u``.

    With ``added``, which is a part of the next S too, it goes from the last block to the first.
    """
    parts = values, read, inverse, written, decays, *([] if added is None else [added])
    by_block = [*zip(*(x.unflatten(0, (-1, blocks)).unbind(1) for x in parts), strict=True)]
    direction = 1 if added is None else -1
    state = torch.zeros_like(written[::blocks, :1].mT * values[::blocks, :1])
    results: list[tuple[Tensor, Tensor]] = []
    for value, reads, inverse_, writes, decay, *more in by_block[::direction]:
        u = torch.bmm(inverse_, torch.baddbmm(value, reads, state) if results else value)
        results.append((u, state))
        if len(results) < blocks:
            kept = torch.addcmul(more[0], decay, state) if more else decay * state
            state = kept.baddbmm_(writes.mT, u)
    u, states = (torch.stack(x[::direction], dim=1).flatten(0, 1) for x in zip(*results, strict=True))
    return u, states


def _multiply_in_place(x: Tensor, y: Tensor) -> Tensor:
    """``x * y``, in place unless autograd or torch.vmap may need the factors."""
    return x * y if torch.is_grad_enabled() else x.mul_(y)


def _row_dot_products(x: Tensor, y: Tensor) -> Tensor:
    """The dot product of each row of ``x`` with the same row of ``y``: ``(.., 1)``."""
    return (x * y).sum(-1, keepdim=True)


def inverse_norm(x: Tensor) -> Tensor:
    """1 over the L2 norm of ``x`` in its last dimension, whose square is at least 1e-6, as in the published code."""
    if torch.is_grad_enabled():
        squares = x.square().sum(-1, keepdim=True)
    else:  # faster, and without a second derivative at 0
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
    return torch.rsqrt(squares + 1e-6)


class DeltaState(NamedTuple):
    """The state of generation after the real steps so far: a key k reads ``k^T S`` from it."""

    memory: Tensor  # S, (B, H, D, E), fp32 if the inputs are half precision


def gated_delta_rule_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    state: DeltaState | None,
    *,
    padding: PaddingLike = None,
) -> tuple[Tensor, DeltaState]:
    """One step of :func:`gated_delta_rule_reference`: its arguments with T = 1.

    Where the step is padding the state does not change; it is None before the first step.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``v``, and the state after this step.
    """
    padding = Padding.of(padding)
    out_dtype, dtype = v.dtype, accumulation_dtype(v)
    q, k, v, log_decay, beta = (x.to(dtype) for x in (q, k, v, log_decay, beta))
    log_decay, beta = (padding.zero(gate) for gate in (log_decay, beta))
    q, k = q * inverse_norm(q), k * inverse_norm(k)
    with full_precision(v):
        if state is None:
            memory = k.mT * (beta[..., None] * v)
        else:
            decayed = log_decay.exp()[..., None] * state.memory
            memory = torch.addcmul(decayed, k.mT, beta[..., None] * (v - k @ decayed))
        return (q @ memory).to(out_dtype), DeltaState(memory)

"""Training form: a triangular system in each block of time, and a D x E state between the blocks."""

import torch
from torch import Tensor

from ..chunks import in_chunks
from ..dtypes import accumulation_dtype, full_precision
from ..prefix_attention.chunked import default_block_length
from .shared import normalised, without_padding


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    *,
    padding_mask: Tensor | None = None,
    block_length: int | None = None,
) -> Tensor:
    """The gated delta rule, linear in T; specified by :func:`.naive.gated_delta_rule`.

    With blocks of C steps it takes O(T (C + D + E) + T D (D + E) / C) memory.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``.
        beta: b, from 0 to 1: ``(B, H, T)``.
        padding_mask: ``(B, T)`` bool, True = padding, anywhere; None = no padding.
        block_length: C, the most steps in a block; None chooses it by shape. It affects cost, not the result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``; summed in fp32 if ``v`` is half precision, also under autocast.
    """
    batch, heads, steps, size = v.shape
    dtype = accumulation_dtype(v)
    gates = without_padding(padding_mask, log_decay.to(dtype), beta.to(dtype))
    inputs = normalised(q.to(dtype)), normalised(k.to(dtype)), v.to(dtype), *(gate[..., None] for gate in gates)
    # Also in a recorded graph a number: it goes through them one after the other.
    blocks = int(-(-steps // (block_length or default_block_length(k.shape[-1], size))))
    # Blocks of about equal length, so that the last one has little padding.
    length = -(-steps // max(1, blocks))
    cut = [in_chunks(x, max(1, length), dim=-2).flatten(0, 2) for x in inputs]
    with full_precision(v):
        out = _of_blocks(*cut, blocks=blocks).view(batch, heads, blocks * length, size)
    return (out if blocks * length == steps else out[:, :, :steps]).to(v.dtype)


def _of_blocks(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, *, blocks: int) -> Tensor:
    """The outputs of blocks ``(B H blocks, C, any size)``.

    With G the running sum of g in a block and S the state before it, step i writes ``b_i k_i u_i^T``, where

        u_i = v_i - exp(G_i) S^T k_i - sum over j < i of exp(G_i - G_j) k_i . k_j b_j u_j

    These are triangular systems, one for the part without S and one for the matrix that S is multiplied with.
    """
    total = g.cumsum(1)
    since = total.exp()
    weights = (total - total.mT).tril().exp() * b.mT
    system, read = torch.bmm(k, k.mT) * weights, (torch.bmm(q, k.mT) * weights).tril()
    if blocks <= 1:
        return torch.bmm(read, torch.linalg.solve_triangular(system, v, upper=False, unitriangular=True))
    sizes = v.shape[-1], k.shape[-1]
    sides = torch.cat([v, k * -since], dim=-1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    kept = k * ((total[:, -1:] - total).exp() * b)
    written, erased = torch.bmm(kept.mT, solved).split(sizes, dim=-1)
    out, erased_before = torch.bmm(read, solved).split(sizes, dim=-1)
    transition = torch.diag_embed(since[:, -1].expand(-1, k.shape[-1])) + erased
    states = _states(transition, written, blocks)
    return torch.baddbmm(out, torch.addcmul(erased_before, q, since), states)


def _states(transition: Tensor, written: Tensor, blocks: int) -> Tensor:
    """The state before each block: 0, then ``transition`` times the one before it plus what is ``written``."""
    matrices, added = (x.unflatten(0, (-1, blocks)).unbind(1) for x in (transition, written))
    states = [torch.zeros_like(added[0])]
    for block in range(blocks - 1):
        states.append(torch.baddbmm(added[block], matrices[block], states[-1]))
    return torch.stack(states, dim=1).flatten(0, 1)

"""Training form for a GPU: one pass over the inputs, forward and backward, in Triton.

It is used only where :func:`.self_check.agrees` finds it correct; elsewhere :mod:`.torch_form` is used.
"""

import os
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..padding import Padding, PaddingLike
from ..prefix_attention import step_weights
from . import torch_form
from .self_check import agrees

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


MOST_ROWS = 2**16 - 1  # rows of a CUDA grid


def luna_causal_attention_from_scores(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """:func:`.torch_form.luna_causal_attention_from_scores`, but the unpack weights may be None: no model reads them.

    Tied keys and values are one tensor. There is no second derivative where the kernels are used.
    """
    inputs = (q, k, v, scores)
    options: dict[str, Any] = {"activation": activation, "dropout_p": dropout_p}
    options |= {"padding": Padding.of(padding), "packed_padding": Padding.of(packed_padding)}
    if _is_supported(*inputs) and agrees(fused, *inputs, **options):
        return fused(*inputs, **options), None
    return torch_form.luna_causal_attention_from_scores(*inputs, **options)


def interpreted() -> bool:
    """Whether Triton executes kernels in Python, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _is_supported(q: Tensor, k: Tensor, v: Tensor, scores: Tensor) -> bool:
    # In inference mode, which has no gradients, the self check could not compare them.
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or not (q.is_cuda or interpreted()):
        return False
    known = all(x.dtype in DTYPES for x in (q, k, v, scores))
    return known and q.numel() > 0 and q.shape[0] * q.shape[1] <= MOST_ROWS


def launch_options(q: Tensor) -> dict[str, Any]:
    """The steps of a chunk, and the precision of products in fp32: the choice compiles without spilled registers.

    TF32 has as many digits as fp16; "tf32x3" computes fp32 by three products in TF32, which is nearly as exact.
    """
    if q.dtype == torch.float32:
        return {"C": 16, "PRECISION": "tf32x3"}
    hopper = q.is_cuda and torch.cuda.get_device_capability(q.device)[0] >= 9
    return {"C": 64 if hopper else 32, "PRECISION": "tf32"}


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    *,
    activation: str,
    padding: Padding,
    packed_padding: Padding,
    dropout_p: float,
) -> Tensor:
    """The output ``(B, H, T, D)`` of the kernels, unchecked; arguments as above."""
    weights = step_weights(padding, q.shape[2], torch.float32, q.device)[:, 0, :, 0].contiguous()
    slots = packed_padding.scores(torch.float32)
    slots = None if slots is None else slots.contiguous()
    # Drawn on the CPU, so that nothing waits for the device.
    seed = int(torch.randint(2**30, ())) if dropout_p else 0
    padded = None if padding.mask is None else padding.mask.contiguous().view(torch.uint8)
    return _LunaCausal.apply(q, k, v, scores, weights, padded, slots, activation, float(dropout_p), seed)


class _LunaCausal(torch.autograd.Function):
    """The launches; ``padding (B, T)`` is 1 at padding, ``weights (1 or B, T)`` one over the number of steps so far."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, s: Tensor, *rest: Any) -> Tensor:
        from . import triton_kernels as kernels

        weights, padding, slots, activation, p, seed = rest
        tied = k is v
        q, k, v, s = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v, s))
        batch, heads, steps, size = q.shape
        program = launch_options(q)
        chunks = -(-steps // program["C"])
        padded_sizes = {"LP": _power_of_2(s.shape[-1]), "DP": _power_of_2(size)}
        constants = {**program, **padded_sizes, "ACTIVATION": activation, "PADDED": padding is not None}
        constants |= {"TIED": tied, "P": p}
        query_constants = {"SLOTS": slots is not None, "HALF": not interpreted()}
        # A kernel needs a pointer even for a mask that it does not read.
        padding, slots = (s if mask is None else mask for mask in (padding, slots))
        sizes = (seed, steps, chunks, s.shape[-1], size, heads)
        grid = (chunks, batch * heads)
        states = q.new_zeros(1 if tied else 2, batch * heads, chunks, *padded_sizes.values(), dtype=torch.float32)
        y = _like_heads(q)
        warps = 4 if padded_sizes["DP"] <= 64 else 8
        if chunks > 1:
            strides = _strides(k, v, s)
            kernels.chunk_states[grid](
                k, v, s, padding, states[0], states[-1], *sizes, *strides, **constants, num_warps=warps
            )
            _scan(states, reverse=False)
        kernels.outputs[grid](
            *(q, k, v, s, padding, weights, slots, states[0], states[-1], y, *sizes),
            *(*_strides(q, k, v, s, y), _rows_apart(weights)),
            **(constants | query_constants),
            num_warps=warps,
        )
        ctx.save_for_backward(q, k, v, s, weights, padding, slots, states)
        ctx.rest = constants, query_constants, sizes, grid
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        from . import triton_kernels as kernels

        q, k, v, s, weights, padding, slots, states = ctx.saved_tensors
        constants, query_constants, sizes, grid = ctx.rest
        dq, dk, dv, same_layout = (_like_heads(q) for _ in range(4))
        if dy.stride() != dq.stride():
            dy = same_layout.copy_(dy)
        ds = torch.empty(s.shape, dtype=s.dtype, device=s.device)
        steps = grid[0] * constants["C"]
        unpacks, dscores = (q.new_empty(grid[1], steps, constants["LP"], dtype=torch.float32) for _ in range(2))
        later = torch.empty_like(states)
        strides = _strides(q, k, v, s, dq)
        kernels.query_gradients[grid](
            *(q, k, v, s, padding, weights, slots, states[0], states[-1]),
            *(dy, dq, unpacks, dscores, later[0], later[-1], *sizes, *strides, _rows_apart(weights)),
            **(constants | query_constants),
            num_warps=8,
        )
        _scan(later, reverse=True)
        kernels.key_gradients[grid](
            *(q, k, v, s, padding, dy, dk, dv, ds, unpacks, dscores, later[0], later[-1], *sizes, *strides),
            **(constants | {"HALF": query_constants["HALF"]}),
            num_warps=8,
        )
        # Tied keys and values are one tensor, whose whole gradient is in dk.
        return dq, dk, None if constants["TIED"] else dv, ds, *([None] * 6)


def _scan(states: Tensor, *, reverse: bool) -> None:
    """Sum the ``states (any, B H, N, LP, DP)`` of the earlier chunks, or in ``reverse`` of the later, in place."""
    from . import triton_kernels as kernels

    size, width = states.shape[-2] * states.shape[-1], 64
    grid = (-(-size // width), states.shape[0] * states.shape[1])
    kernels.scan[grid](states, states.shape[2], size, BLOCK=32, WIDTH=width, REVERSE=reverse, num_warps=4)


def _like_heads(q: Tensor) -> Tensor:
    """An empty ``(B, H, T, D)`` whose heads can be merged without a copy."""
    batch, heads, steps, size = q.shape
    return q.new_empty(steps, batch, heads, size).permute(1, 2, 0, 3)


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for x in tensors for stride in x.stride()[:3]]


def _rows_apart(weights: Tensor) -> int:
    """The stride from one sentence to the next, 0 if all sentences share a row."""
    return weights.stride(0) if weights.shape[0] > 1 else 0


def _power_of_2(size: int) -> int:
    """The next power of two, at least the 16 that a product needs."""
    return max(16, 1 << (size - 1).bit_length())

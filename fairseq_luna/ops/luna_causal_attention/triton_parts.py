"""What the Triton kernels of Luna's causal attention share.

A program computes one chunk of C steps, number c, of one head of one sentence, number bh. L slots and D channels are
rounded up to powers of two, LP and DP. Strides of x are xb, xh, xt; that of channels is 1.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def activated(scores, ACTIVATION: tl.constexpr):
    """The positive function of the scores, and its derivative."""
    if ACTIVATION == "softplus":  # in base 2
        small = tl.exp2(-tl.abs(scores))
        # log2(1 + small), also where 1 + small has few of its digits or none: the error of the sum cancels.
        rounded = 1.0 + small
        share = tl.where(rounded > 1.0, small / tl.where(rounded > 1.0, rounded - 1.0, 1.0), 0.0)
        log2_of_sum = tl.where(rounded > 1.0, tl.log2(rounded) * share, small * LOG2_E)
        value = tl.maximum(scores, 0.0) + log2_of_sum
        slope = 1.0 / (1.0 + tl.exp2(-scores))
    else:  # elu + 1
        below = tl.exp(tl.minimum(scores, 0.0))
        value = tl.where(scores > 0, scores + 1.0, below)
        slope = tl.where(scores > 0, 1.0, below)
    return value, slope


@triton.jit
def dropped(x, seed, places, P: tl.constexpr):
    """Dropout that draws the same numbers whenever it is called with this seed and these places."""
    return tl.where(tl.rand(seed, places) >= P, x / (1.0 - P), 0.0)


@triton.jit
def product(a, b, HALF: tl.constexpr, PRECISION: tl.constexpr):
    """``a b`` in fp32: of half precision as it is, if HALF; of anything else in fp32, as PRECISION says."""
    if HALF and a.dtype == b.dtype and a.dtype != tl.float32:
        result = tl.dot(a, b)
    else:
        result = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision=PRECISION)
    return result


@triton.jit
def rows(x, b, h, t, d, T, D, xb, xh, xt):
    """``[C, DP]``: the steps t of one head."""
    places = b * xb + h * xh + t[:, None] * xt + d[None, :]
    return tl.load(x + places, mask=(t < T)[:, None] & (d < D)[None, :], other=0.0)


@triton.jit
def state_places(bh, c, N, j, d, LP: tl.constexpr, DP: tl.constexpr):
    """Where the state ``[LP, DP]`` of a chunk stands."""
    return (bh * N + c) * LP * DP + j[:, None] * DP + d[None, :]


@triton.jit
def pack_weights(
    s, padding, seed, b, h, bh, t, j, T, L, sb, sh, st, ACTIVATION: tl.constexpr, PADDED: tl.constexpr, P: tl.constexpr
):
    """``[C, LP]``: the pack weights of a chunk after dropout, 0 at padding, and their derivatives by the scores."""
    inside = (t < T)[:, None] & (j < L)[None, :]
    scores = tl.load(s + b * sb + h * sh + t[:, None] * st + j[None, :], mask=inside, other=0.0)
    weights, slopes = activated(scores.to(tl.float32), ACTIVATION)
    if PADDED:
        inside = inside & (tl.load(padding + b * T + t, mask=t < T, other=1) == 0)[:, None]
    weights, slopes = tl.where(inside, weights, 0.0), tl.where(inside, slopes, 0.0)
    if P > 0:
        places = (bh * T + t[:, None]) * L + j[None, :]
        weights, slopes = dropped(weights, seed, places, P), dropped(slopes, seed, places, P)
    return weights, slopes


@triton.jit
def unpack_weights(
    q, k, pack, keys, each, slots, b, j, L, D, causal, SLOTS: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr
):
    """``[C, LP]``: the softmax over the slots before dropout, and ``[C]``: what its scores were multiplied by.

    The scores are q times the mean of ``k_j pack_j^T``: over this chunk, and over the earlier ones, which is ``keys``.
    """
    scale = each * (1.0 / tl.sqrt(D.to(tl.float32)))
    within = tl.where(causal, product(q, tl.trans(k), HALF, PRECISION), 0.0)
    scores = product(within, pack, False, PRECISION) + product(q, tl.trans(keys), False, PRECISION)
    scores = scores * scale[:, None]
    if SLOTS:
        scores += tl.load(slots + b * L + j, mask=j < L, other=0.0)[None, :].to(tl.float32)
    scores = tl.where((j < L)[None, :], scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None], scale

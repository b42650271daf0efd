"""The Triton kernels of Luna's causal attention.

Forward: chunk_states, scan, outputs. Backward: query_gradients, scan in reverse, key_gradients. The only tensors of the
size of the pack weights that are written are gradients; besides them there is a state of L x D per chunk, which tied
keys and values share.

A program computes one chunk of C steps, number c, of one head of one sentence, number bh. L slots and D channels are
rounded up to powers of two, LP and DP. Strides of x are xb, xh, xt; the stride of channels is 1.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def activation_and_slope(scores, ACTIVATION: tl.constexpr):
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
def apply_dropout(x, seed, places, P: tl.constexpr):
    """Dropout that draws the same numbers whenever it is called with this seed and these places."""
    return tl.where(tl.rand(seed, places) >= P, x / (1.0 - P), 0.0)


@triton.jit
def product(a, b, HALF: tl.constexpr, PRECISION: tl.constexpr):
    """``a b`` in fp32. With HALF, factors of the same half precision are not converted; others are, to PRECISION."""
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
    """The offsets of the state ``[LP, DP]`` of a chunk."""
    return (bh * N + c) * LP * DP + j[:, None] * DP + d[None, :]


@triton.jit
def pack_weights(
    s, padding, seed, b, h, bh, t, j, T, L, sb, sh, st, ACTIVATION: tl.constexpr, PADDED: tl.constexpr, P: tl.constexpr
):
    """``[C, LP]``: the pack weights of a chunk after dropout, 0 at padding, and their derivatives by the scores."""
    inside = (t < T)[:, None] & (j < L)[None, :]
    scores = tl.load(s + b * sb + h * sh + t[:, None] * st + j[None, :], mask=inside, other=0.0)
    weights, slopes = activation_and_slope(scores.to(tl.float32), ACTIVATION)
    if PADDED:
        inside = inside & (tl.load(padding + b * T + t, mask=t < T, other=1) == 0)[:, None]
    weights, slopes = tl.where(inside, weights, 0.0), tl.where(inside, slopes, 0.0)
    if P > 0:
        places = (bh * T + t[:, None]) * L + j[None, :]
        weights, slopes = apply_dropout(weights, seed, places, P), apply_dropout(slopes, seed, places, P)
    return weights, slopes


@triton.jit
def unpack_weights(
    q, k, pack, keys, each, slots, b, j, L, D, causal, SLOTS: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr
):
    """``[C, LP]``: the softmax over the slots before dropout, and ``[C]``: the scale of its scores.

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


# Sizes that change from batch to batch: a kernel compiled for one is not compiled again for another.
VARYING = ["T", "N", "seed"]


@triton.jit(do_not_specialize=VARYING)
def chunk_states(
    k, v, s, padding, states, values, seed, T, N, L, D, H, kb, kh, kt, vb, vh, vt, sb, sh, st,
    C: tl.constexpr, LP: tl.constexpr, DP: tl.constexpr, ACTIVATION: tl.constexpr, PADDED: tl.constexpr,
    TIED: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sum of ``pack_j k_j^T`` of each chunk, and of ``pack_j v_j^T``."""
    c, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = bh // H, bh % H
    t, j, d = c * C + tl.arange(0, C), tl.arange(0, LP), tl.arange(0, DP)
    pack, _ = pack_weights(s, padding, seed, b, h, bh, t, j, T, L, sb, sh, st, ACTIVATION, PADDED, P)
    places = state_places(bh, c, N, j, d, LP, DP)
    tl.store(states + places, product(tl.trans(pack), rows(k, b, h, t, d, T, D, kb, kh, kt), False, PRECISION))
    if not TIED:
        tl.store(values + places, product(tl.trans(pack), rows(v, b, h, t, d, T, D, vb, vh, vt), False, PRECISION))


@triton.jit(do_not_specialize=["N"])
def scan(x, N, SIZE, BLOCK: tl.constexpr, WIDTH: tl.constexpr, REVERSE: tl.constexpr):
    """In place, ``x (any, N, SIZE)``: the sum of the earlier chunks, or of the later ones."""
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    x += tl.program_id(1).to(tl.int64) * N * SIZE
    total = tl.zeros([WIDTH], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        n = start + tl.arange(0, BLOCK)
        n = tl.where(REVERSE, N - 1 - n, n)
        inside = ((n >= 0) & (n < N))[:, None] & (column < SIZE)[None, :]
        own = tl.load(x + n[:, None] * SIZE + column[None, :], mask=inside, other=0.0)
        tl.store(x + n[:, None] * SIZE + column[None, :], total[None, :] + tl.cumsum(own, 0) - own, mask=inside)
        total += tl.sum(own, 0)


@triton.jit(do_not_specialize=VARYING)
def outputs(
    q, k, v, s, padding, each, slots, states, values, y, seed, T, N, L, D, H,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, sb, sh, st, yb, yh, yt, eb,
    C: tl.constexpr, LP: tl.constexpr, DP: tl.constexpr, ACTIVATION: tl.constexpr, PADDED: tl.constexpr,
    TIED: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr, SLOTS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """y; ``states`` and ``values`` are sums of the earlier chunks, ``each`` is one over the number of steps so far."""
    c, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = bh // H, bh % H
    i = tl.arange(0, C)
    t, j, d = c * C + i, tl.arange(0, LP), tl.arange(0, DP)
    causal = i[:, None] >= i[None, :]
    pack, _ = pack_weights(s, padding, seed, b, h, bh, t, j, T, L, sb, sh, st, ACTIVATION, PADDED, P)
    xq, xk = rows(q, b, h, t, d, T, D, qb, qh, qt), rows(k, b, h, t, d, T, D, kb, kh, kt)
    keys = tl.load(states + state_places(bh, c, N, j, d, LP, DP))
    by_step = tl.load(each + b * eb + t, mask=t < T, other=0.0)
    unpack, _ = unpack_weights(xq, xk, pack, keys, by_step, slots, b, j, L, D, causal, SLOTS, HALF, PRECISION)
    if P > 0:
        unpack = apply_dropout(unpack, seed + 1, (bh * T + t[:, None]) * L + j[None, :], P)
    unpack = unpack * by_step[:, None]
    if TIED:
        xv, means = xk, keys
    else:
        xv = rows(v, b, h, t, d, T, D, vb, vh, vt)
        means = tl.load(values + state_places(bh, c, N, j, d, LP, DP))
    within = tl.where(causal, product(unpack, tl.trans(pack), False, PRECISION), 0.0)
    result = product(within, xv, False, PRECISION) + product(unpack, means, False, PRECISION)
    inside = (t < T)[:, None] & (d < D)[None, :]
    tl.store(y + b * yb + h * yh + t[:, None] * yt + d[None, :], result.to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=VARYING)
def query_gradients(
    q, k, v, s, padding, each, slots, states, values, dy, dq, unpacks, dscores, dkeys, dvalues, seed, T, N, L, D, H,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, sb, sh, st, yb, yh, yt, eb,
    C: tl.constexpr, LP: tl.constexpr, DP: tl.constexpr, ACTIVATION: tl.constexpr, PADDED: tl.constexpr,
    TIED: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr, SLOTS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """dq; the unpack weights and the gradient of their scores; the gradient that each chunk adds to earlier keys."""
    c, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = bh // H, bh % H
    i = tl.arange(0, C)
    t, j, d = c * C + i, tl.arange(0, LP), tl.arange(0, DP)
    causal = i[:, None] >= i[None, :]
    pack, _ = pack_weights(s, padding, seed, b, h, bh, t, j, T, L, sb, sh, st, ACTIVATION, PADDED, P)
    xq, xk = rows(q, b, h, t, d, T, D, qb, qh, qt), rows(k, b, h, t, d, T, D, kb, kh, kt)
    keys = tl.load(states + state_places(bh, c, N, j, d, LP, DP))
    by_step = tl.load(each + b * eb + t, mask=t < T, other=0.0)
    unpack, scale = unpack_weights(xq, xk, pack, keys, by_step, slots, b, j, L, D, causal, SLOTS, HALF, PRECISION)
    dout = rows(dy, b, h, t, d, T, D, yb, yh, yt)
    if TIED:
        xv, means = xk, keys
    else:
        xv = rows(v, b, h, t, d, T, D, vb, vh, vt)
        means = tl.load(values + state_places(bh, c, N, j, d, LP, DP))
    within = tl.where(causal, product(dout, tl.trans(xv), HALF, PRECISION), 0.0)
    dunpack = product(within, pack, False, PRECISION) + product(dout, tl.trans(means), False, PRECISION)
    dunpack = dunpack * by_step[:, None]
    used = unpack
    if P > 0:
        places = (bh * T + t[:, None]) * L + j[None, :]
        used, dunpack = apply_dropout(unpack, seed + 1, places, P), apply_dropout(dunpack, seed + 1, places, P)
    dscore = unpack * (dunpack - tl.sum(unpack * dunpack, 1)[:, None]) * scale[:, None]
    used = used * by_step[:, None]
    within = tl.where(causal, product(dscore, tl.trans(pack), False, PRECISION), 0.0)
    result = product(within, xk, False, PRECISION) + product(dscore, keys, False, PRECISION)
    inside = (t < T)[:, None] & (d < D)[None, :]
    tl.store(dq + b * yb + h * yh + t[:, None] * yt + d[None, :], result.to(dq.dtype.element_ty), mask=inside)
    places = (bh * N * C + t[:, None]) * LP + j[None, :]
    tl.store(unpacks + places, used)
    tl.store(dscores + places, dscore)
    places = state_places(bh, c, N, j, d, LP, DP)
    dkey = product(tl.trans(dscore), xq, False, PRECISION)
    dvalue = product(tl.trans(used), dout, False, PRECISION)
    if TIED:
        tl.store(dkeys + places, dkey + dvalue)
    else:
        tl.store(dkeys + places, dkey)
        tl.store(dvalues + places, dvalue)


@triton.jit(do_not_specialize=VARYING)
def key_gradients(
    q, k, v, s, padding, dy, dk, dv, ds, unpacks, dscores, dkeys, dvalues, seed, T, N, L, D, H,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, sb, sh, st, yb, yh, yt,
    C: tl.constexpr, LP: tl.constexpr, DP: tl.constexpr, ACTIVATION: tl.constexpr, PADDED: tl.constexpr,
    TIED: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """dk, dv and the gradient of the pack scores; ``dkeys`` and ``dvalues`` are sums of the later chunks."""
    c, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    b, h = bh // H, bh % H
    i = tl.arange(0, C)
    t, j, d = c * C + i, tl.arange(0, LP), tl.arange(0, DP)
    later = i[:, None] <= i[None, :]  # rows are keys, columns are queries
    pack, slopes = pack_weights(s, padding, seed, b, h, bh, t, j, T, L, sb, sh, st, ACTIVATION, PADDED, P)
    xq, xk = rows(q, b, h, t, d, T, D, qb, qh, qt), rows(k, b, h, t, d, T, D, kb, kh, kt)
    dout = rows(dy, b, h, t, d, T, D, yb, yh, yt)
    places = (bh * N * C + t[:, None]) * LP + j[None, :]
    dscore, unpack = tl.load(dscores + places), tl.load(unpacks + places)
    dkey = tl.load(dkeys + state_places(bh, c, N, j, d, LP, DP))
    within = tl.where(later, product(xk, tl.trans(xq), HALF, PRECISION), 0.0)
    dpack = product(within, dscore, False, PRECISION) + product(xk, tl.trans(dkey), False, PRECISION)
    within = tl.where(later, product(pack, tl.trans(dscore), False, PRECISION), 0.0)
    result = product(within, xq, False, PRECISION) + product(pack, dkey, False, PRECISION)
    inside = (t < T)[:, None] & (d < D)[None, :]
    places = b * yb + h * yh + t[:, None] * yt + d[None, :]
    if TIED:
        xv = xk
    else:
        xv = rows(v, b, h, t, d, T, D, vb, vh, vt)
        tl.store(dk + places, result.to(dk.dtype.element_ty), mask=inside)
        dvalue = tl.load(dvalues + state_places(bh, c, N, j, d, LP, DP))
        dpack += product(xv, tl.trans(dvalue), False, PRECISION)
        result = product(pack, dvalue, False, PRECISION)
    within = tl.where(later, product(xv, tl.trans(dout), HALF, PRECISION), 0.0)
    dpack += product(within, unpack, False, PRECISION)
    within = tl.where(later, product(pack, tl.trans(unpack), False, PRECISION), 0.0)
    result += product(within, dout, False, PRECISION)
    tl.store((dk if TIED else dv) + places, result.to(dk.dtype.element_ty), mask=inside)
    inside = (t < T)[:, None] & (j < L)[None, :]
    tl.store(ds + (bh * T + t[:, None]) * L + j[None, :], (dpack * slopes).to(ds.dtype.element_ty), mask=inside)

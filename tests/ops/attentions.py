"""Every attention of ``fairseq_luna.ops`` as one call, for tests that run all of them."""

import torch

from fairseq_luna.ops import (
    block_attention,
    external_attention,
    fastformer_attention,
    feature_maps,
    folded_attention,
    kernel_attention,
    linformer_attention,
    luna_causal_attention,
    mixed_chunk_attention,
    nystrom_attention,
    pattern_attention,
    prefix_attention,
    prefix_softmax,
    reformer_attention,
    softmax_attention,
    synthesizer_attention,
)
from fairseq_luna.ops.block_partition import block_means, cut_by_number, cut_by_size
from numeric import randn

STEPS, SLOTS, SIZE = 70, 4, 8
MAPS = fastformer_attention.FastformerMaps(
    query_score=lambda q: q.sum(-1), key_score=lambda p: p.sum(-1), combine_key=torch.mul, combine_value=torch.add
)


def made(like, *shape, seed=0):
    """An input; all of them are made here."""
    return randn(*shape, grad=False, seed=seed).to(like).requires_grad_()


def sequence(like, seed, steps=None):
    return made(like, 2, 2, steps or STEPS, SIZE, seed=seed)


def qkv(like):
    return [sequence(like, seed) for seed in range(3)]


def blocks(like, causal=False):
    mask = torch.zeros(2, STEPS, dtype=torch.bool, device=like.device)
    return cut_by_size(mask, 8, dtype=like.dtype) if causal else cut_by_number(mask, 0, dtype=like.dtype)


def luna_step(like, of_memory):
    q, k, v = qkv(like)
    pq, pk = sequence(like, 3, SLOTS), sequence(like, 4)
    scores = luna_causal_attention.pack_scores(pq, pk)
    state = luna_causal_attention.initial_state(pq, tied=False)
    if of_memory:
        state = luna_causal_attention.state_after(k, v, scores, tied=False)
    return luna_causal_attention.luna_causal_attention_step(q, k, v, scores, state)


def unordered_step(like):
    v = sequence(like, 2)
    return block_attention.unordered_block_attention_step(
        v, lambda s: (s, s, s), block_attention.initial_state(v), reduce="mean", block_size=8
    )


def folded(like, bias=True):
    weight = made(like, 2 * SIZE, 2 * SIZE) / 4
    affine = folded_attention.Affine(weight, made(like, 2 * SIZE) if bias else None)
    x, slots = sequence(like, 0).transpose(1, 2).flatten(2), sequence(like, 3, SLOTS)
    packed = folded_attention.pack(slots, x, affine, affine)
    return packed, folded_attention.unpack(x, packed, packed, affine, affine)


def features(like):
    """Features of q and k for each normaliser of kernel attention, and v."""
    q, k, v = qkv(like)
    w = sequence(like, 3, 6)[:1, 0]
    fourier = [feature_maps.fourier_features(x, w) for x in (q, k)]
    return {
        "sum": (feature_maps.positive_query_features(q, w[0]), feature_maps.positive_key_features(k, w[0]), v),
        "bounded": (*fourier, v),
        "each feature": (feature_maps.softmax_features(q), feature_maps.exponential_features(k), v),
    }


def kernel(attention):
    """A kernel attention with each normaliser."""
    return lambda like: [attention(*args, normaliser=name) for name, args in features(like).items()]


def kernel_step(q, k, v, *, normaliser):
    state = kernel_attention.initial_kernel_mean(k, v)
    return kernel_attention.kernel_causal_attention_step(q, k, v, state, normaliser=normaliser)


def kernel_weights(q, k, v, *, normaliser):
    state = kernel_attention.kernel_mean_of(k, v)
    return kernel_attention.kernel_weights(q, k, state, normaliser=normaliser)


def pattern(of, causal=False):
    """Pattern attention over a sequence with padding."""

    def attention(like):
        mask = torch.zeros(2, STEPS, dtype=torch.bool, device=like.device)
        mask[:, ::7] = True
        return pattern_attention.pattern_attention(*qkv(like), of, padding_mask=mask, causal=causal)

    return attention


def pattern_step(of):
    def attention(like):
        q, k, v = qkv(like)
        return pattern_attention.pattern_attention_step(q, k, v, of, pattern_attention.initial_cache(k))

    return attention


def slots(like, steps, size=SLOTS):
    """Two learned matrices of an attention to slots."""
    return [made(like, size, steps, seed=seed) for seed in (4, 5)]


def external_step(like):
    q, keys, values = sequence(like, 0), *slots(like, SIZE)
    state = external_attention.initial_slot_means(q, keys)
    return external_attention.external_causal_attention_step(q, keys, values, state)


def synthesizer_step(like):
    v = sequence(like, 2)
    scores, state = sequence(like, 3, 1)[:1, :, :, :1], synthesizer_attention.initial_values(v)
    return synthesizer_attention.synthesizer_attention_step(scores, v[:, :, :1], state)


def synthesizer(causal):
    """With scores of positions alone, with those of words, and with keys of positions."""

    def attention(like):
        (q, k, v), scores = qkv(like), made(like, 2, 2, STEPS, STEPS)
        return [
            *(synthesizer_attention.synthesizer_attention(x, v, causal=causal) for x in (scores[:1], scores)),
            synthesizer_attention.position_attention(q, k[0], v, causal=causal),
        ]

    return attention


def mixed_chunks(causal, steps=None):
    """Keys, far keys and values of ``steps``, and the bias of chunks of 8."""

    def inputs(like):
        bias = made(like, 8 if causal else 15)
        return *(sequence(like, seed, steps) for seed in range(5)), bias

    return inputs


def mixed_chunk_step(like):
    """Ten steps, the last two in the second chunk."""
    args = mixed_chunks(causal=True, steps=10)(like)
    state = mixed_chunk_attention.initial_chunk(args[1], args[4])
    return mixed_chunk_attention.mixed_chunk_attention_step(*args, state, chunk_size=8)


# Each takes a tensor with the dtype and the device of its inputs, and returns tensors.
SUMS = {
    "prefix-attention": lambda like: prefix_attention.prefix_attention(*qkv(like)),
    "prefix-mean-of": lambda like: prefix_attention.prefix_mean_of(*qkv(like)[1:]),
    "prefix-softmax": lambda like: prefix_softmax.prefix_softmax(sequence(like, 0).sum(-1), sequence(like, 1)),
    "prefix-softmax-step": lambda like: prefix_softmax.prefix_softmax_step(
        sequence(like, 0).sum(-1), sequence(like, 1), prefix_softmax.initial_running_softmax(sequence(like, 1))
    ),
    "fastformer": lambda like: fastformer_attention.fastformer_attention(*qkv(like), MAPS),
    "fastformer-causal": lambda like: fastformer_attention.fastformer_causal_attention(*qkv(like), MAPS),
    "fastformer-step": lambda like: fastformer_attention.fastformer_causal_attention_step(
        *qkv(like), MAPS, fastformer_attention.initial_state(sequence(like, 0))
    ),
    "elu-features": lambda like: feature_maps.elu_features(sequence(like, 0)),
    "kernel": kernel(kernel_attention.kernel_attention),
    "kernel-causal": kernel(kernel_attention.kernel_causal_attention),
    "kernel-step": kernel(kernel_step),
    "kernel-weights": kernel(kernel_weights),
    "external": lambda like: external_attention.external_attention(sequence(like, 0), *slots(like, SIZE)),
    "external-causal": lambda like: external_attention.external_causal_attention(sequence(like, 0), *slots(like, SIZE)),
    "external-step": external_step,
    "mixed-chunks": lambda like: mixed_chunk_attention.mixed_chunk_attention(
        *mixed_chunks(causal=False)(like), chunk_size=8
    ),
    "mixed-chunks-causal": lambda like: mixed_chunk_attention.mixed_chunk_attention(
        *mixed_chunks(causal=True)(like), chunk_size=8, causal=True
    ),
    "mixed-chunks-step": mixed_chunk_step,
    "block-means": lambda like: block_means(sequence(like, 0)[:, 0].transpose(0, 1), blocks(like)),
}
ATTENTIONS = {
    **SUMS,
    "softmax": lambda like: softmax_attention.softmax_attention(*qkv(like), need_weights=True),
    "linformer": lambda like: linformer_attention.linformer_attention(*qkv(like), *slots(like, STEPS)),
    "nystrom": lambda like: nystrom_attention.nystrom_attention(
        *qkv(like), slots(like, 5, size=2)[0], num_landmarks=SLOTS
    ),
    "synthesizer": synthesizer(causal=False),
    "synthesizer-causal": synthesizer(causal=True),
    "synthesizer-step": synthesizer_step,
    "reformer": lambda like: reformer_attention.reformer_attention(
        *qkv(like)[:2], sequence(like, 3, 5)[:, 0].mT.detach(), chunk_size=8
    ),
    "folded": folded,
    "folded-without-bias": lambda like: folded(like, bias=False),
    "luna-causal": lambda like: luna_causal_attention.luna_causal_attention(
        *qkv(like), sequence(like, 3, SLOTS), sequence(like, 4)
    ),
    "luna-step": lambda like: luna_step(like, of_memory=False),
    "luna-step-after-memory": lambda like: luna_step(like, of_memory=True),
    "block": lambda like: block_attention.block_attention(*qkv(like), lambda s: (s, s, s), blocks(like)),
    "block-causal": lambda like: block_attention.block_attention(
        *qkv(like), lambda s: (s, s, s), blocks(like, causal=True), causal=True
    ),
    "block-fused": lambda like: block_attention.fused.block_attention(*qkv(like), lambda s: (s, s, s), blocks(like)),
    "block-step": lambda like: block_attention.block_attention_step(
        *qkv(like), lambda s: (s, s, s), block_attention.initial_state(sequence(like, 0)), block_size=8
    ),
    "block-unordered": lambda like: block_attention.unordered_block_attention(
        sequence(like, 2), lambda s: (s, s, s), blocks(like, causal=True), reduce="mean", causal=True
    ),
    "block-unordered-step": unordered_step,
    "window": pattern(pattern_attention.Window(5)),
    "window-and-first": pattern(pattern_attention.Window(5, dilation=2, first=True)),
    "strided": pattern(pattern_attention.Strided(8, 2)),
    "strided-step": pattern_step(pattern_attention.Strided(8, 2)),
    "random-blocks": lambda like: pattern(
        pattern_attention.RandomBlocks(4, 3, seeds=torch.arange(2, device=like.device))
    )(like),
    "window-step": pattern_step(pattern_attention.Window(5, dilation=2)),
    "topk-causal": pattern(pattern_attention.TopK(4), causal=True),
    "topk-step": pattern_step(pattern_attention.TopK(4)),
    "topk-weights": lambda like: pattern_attention.topk_attention(*qkv(like), count=4, need_weights=True),
}

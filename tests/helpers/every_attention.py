"""Every attention as a module, called alike: those of the table, Luna's with learned slots, the pyramid's."""

from argparse import Namespace
from functools import partial

import pytest
import torch
from torch import nn

from fairseq_luna.models.mixed.attentions import ATTENTIONS, PLACES, build_attention
from fairseq_luna.models.mixed.config import mixed_config
from fairseq_luna.modules import (
    BlockAttention,
    BlockCausalAttention,
    FastformerAttention,
    FastformerCausalAttention,
    LunaAttention,
    LunaCausalAttention,
)
from fairseq_luna.modules.block_attention import WithinBlockAttention
from fairseq_luna.ops.block_partition import cut_by_number
from support import TINY

SIZE, SLOTS, STEPS, BATCH = 8, 3, 20, 3
# The flags of the models that are options of every attention.
FLAGS = {"dropout": "attention_dropout", "q_noise": "quant_noise_pq", "qn_block_size": "quant_noise_pq_block_size"}


class WithSlots(nn.Module):
    """A Luna attention with packed slots of its own."""

    def __init__(self, **options):
        super().__init__(embed_dim=SIZE, num_heads=2, **options)
        self.slots = nn.Parameter(torch.randn(SLOTS, 1, SIZE))

    def packed(self, batch):
        return self.slots.expand(-1, batch, -1)


class LunaSelf(WithSlots, LunaAttention):
    def forward(self, x, *, padding_mask=None):
        return super().forward(x, self.packed(x.shape[1]), x, context_padding_mask=padding_mask)[0]


class LunaCausal(WithSlots, LunaCausalAttention):
    def forward(self, x, *, padding_mask=None, incremental_state=None):
        packed = self.packed(x.shape[1])
        return super().forward(x, packed, padding_mask=padding_mask, incremental_state=incremental_state)[0]


class LunaSource(WithSlots, LunaAttention):
    def forward(self, x, source, *, source_padding_mask=None, **options):
        packed = None if source is None else self.packed(source.shape[1])
        out, _, weights = super().forward(x, packed, source, context_padding_mask=source_padding_mask, **options)
        return out, weights


class Pyramid(WithinBlockAttention):
    """Reads blocks in place of a mask."""

    def forward(self, x, *, padding_mask=None):
        unpadded = torch.zeros(x.shape[1::-1], dtype=torch.bool, device=x.device)
        return super().forward(x, blocks=cut_by_number(unpadded if padding_mask is None else padding_mask, 3))


def luna(place, **options):
    if place == "decoder":
        return LunaCausal(**options)
    return (LunaSelf if place == "encoder" else LunaSource)(num_packed_heads=2, **options)


def of_table(name, place, **options):
    sizes = {"encoder_embed_dim": SIZE, "decoder_embed_dim": SIZE}
    flags = {FLAGS.get(option, option): value for option, value in options.items()}
    cfg = {**TINY, **sizes, "share_all_embeddings": False, PLACES[place]: name, **flags}
    return build_attention(mixed_config(Namespace(**cfg)), place)


def of_kinds(encoder, decoder, place, **options):
    """An attention with options that the table does not have."""
    return (encoder if place == "encoder" else decoder)(embed_dim=SIZE, num_heads=2, **options)


fastformer = partial(of_kinds, FastformerAttention, FastformerCausalAttention)
block = partial(of_kinds, BlockAttention, BlockCausalAttention)
VARIANTS = {
    "luna": luna,
    "luna-untied": partial(luna, tie_kv=False),
    "luna-convolution": partial(luna, tie_kv=False, kernel_size=3),
    "luna-segments": partial(luna, segment_bias=2.0),
    "block-unordered": partial(of_table, "block", unordered_blocks="mean"),
    "convolution": partial(of_table, "linear", attention_kernel_size=3),
    "pyramid": lambda place, **options: Pyramid(embed_dim=SIZE, num_heads=2, **options),
}
# For the contract alone: what else their flags choose.
OPTIONS = {
    "luna-elu": partial(luna, activation="elu"),
    "fastformer-sum": partial(fastformer, combine="sum", residual="global-query", share="none"),
    "fastformer-concat": partial(fastformer, combine="concat", share="query-key-value", kernel_size=3),
    "block-shared": partial(block, share_levels=True),
    "block-sum": partial(block, unordered="sum", share_levels=True, kernel_size=3),
}
PLACES_OF = {
    **{name: tuple(attention.factories()) for name, attention in ATTENTIONS.items()},
    **dict.fromkeys(("luna", "luna-untied"), tuple(PLACES)),
    **dict.fromkeys(("luna-convolution", "convolution", "block-unordered"), ("encoder", "decoder")),
    "luna-segments": ("encoder", "source"),
    "pyramid": ("encoder",),
}
EVERY = [(name, place) for name, places in PLACES_OF.items() for place in places]
WITH_OPTIONS = [
    (name, place) for name in OPTIONS for place in ("encoder", "decoder") if name != "luna-elu" or place == "decoder"
]


def build(name, place, seed=0, **options):
    """The attention of this name for a place, in evaluation, with random weights that its seed decides."""
    torch.manual_seed(seed)
    module = (VARIANTS | OPTIONS).get(name, partial(of_table, name))(place, **options).eval()
    module.source_size = options.get("encoder_embed_dim", SIZE)
    return module


def every(*places, without=(), also=()):
    """Runs a test with each attention, as ``name`` and ``place``."""
    found = [each for each in [*EVERY, *also] if each[1] in (places or PLACES) and each[0] not in without]
    return pytest.mark.parametrize(("name", "place"), found, ids=map("-".join, found))


def call(module, place, x, mask=None, source=None, **state):
    """The output for ``x (T, B, C)``; ``mask`` is that of what is read: of ``x`` or, at the source, of ``source``."""
    if place == "source":
        return module(x, source, source_padding_mask=mask, **state)[0]
    return module(x, padding_mask=mask, **state)


def call_in_steps(module, place, x, source, incremental_state):
    """The outputs ``(1, B, C)`` of the steps of generation, one after the other."""
    for t, step in enumerate(x.split(1)):
        yield call(module, place, step, source=source if t == 0 else None, incremental_state=incremental_state)


def randn(steps=STEPS, batch=BATCH, seed=0, size=SIZE):
    return torch.randn(steps, batch, size, generator=torch.Generator().manual_seed(seed))


def inputs(module, steps=STEPS, batch=BATCH, source_steps=None, seed=0):
    """A sequence and a source ``(T, B, C)``, of fp32."""
    source_steps = steps if source_steps is None else source_steps
    return randn(steps, batch, seed), randn(source_steps, batch, seed + 1, module.source_size)

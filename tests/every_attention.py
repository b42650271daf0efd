"""Every attention as a module of its own, called alike: those of the table, and Luna's with learned slots."""

from argparse import Namespace

import pytest
import torch
from torch import nn

from fairseq_luna.models.mixed.attentions import ATTENTIONS, PLACES, build_attention
from fairseq_luna.models.mixed.config import mixed_config
from fairseq_luna.modules import LunaAttention, LunaCausalAttention
from support import TINY

SIZE, SOURCE_SIZE, SLOTS = 8, 8, 3


class WithSlots(nn.Module):
    """A Luna attention with packed slots of its own."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.slots = nn.Parameter(torch.randn(SLOTS, 1, SIZE))

    def packed(self, batch):
        return self.slots.expand(-1, batch, -1)


class LunaSelf(WithSlots):
    def forward(self, x, *, padding_mask=None):
        return self.attention(x, self.packed(x.shape[1]), x, context_padding_mask=padding_mask)[0]


class LunaCausal(WithSlots):
    def forward(self, x, *, padding_mask=None, incremental_state=None):
        packed = self.packed(x.shape[1])
        return self.attention(x, packed, padding_mask=padding_mask, incremental_state=incremental_state)[0]


class LunaSource(WithSlots):
    def forward(self, x, source, *, source_padding_mask=None, **options):
        packed = None if source is None else self.packed(source.shape[1])
        out, _, weights = self.attention(x, packed, source, context_padding_mask=source_padding_mask, **options)
        return out, weights


def luna(place, **options):
    if place == "decoder":
        return LunaCausal(LunaCausalAttention(embed_dim=SIZE, num_heads=2, **options))
    kind = LunaSelf if place == "encoder" else LunaSource
    return kind(LunaAttention(embed_dim=SIZE, num_heads=2, num_packed_heads=2, **options))


def of_table(name, place, **flags):
    sizes = {"encoder_embed_dim": SIZE, "decoder_embed_dim": SIZE}
    return build_attention(mixed_config(Namespace(**{**TINY, **sizes, PLACES[place]: name, **flags})), place)


def build(name, place, **flags):
    """The attention of this name for a place, in evaluation, with random weights that are always the same."""
    torch.manual_seed(0)
    if name == "luna":
        return luna(place).eval()
    if name == "luna-convolution":
        return luna(place, tie_kv=False, kernel_size=3).eval()
    if name == "luna-segments":
        return luna(place, segment_bias=2.0).eval()
    if name == "block-unordered":
        return of_table("block", place, unordered_blocks="mean", **flags).eval()
    if name == "convolution":
        return of_table("linear", place, attention_kernel_size=3, **flags).eval()
    return of_table(name, place, **flags).eval()


MORE = ("luna-convolution", "convolution", "block-unordered")
EVERY = [
    *((name, place) for name, attention in ATTENTIONS.items() for place in attention.factories()),
    *(("luna", place) for place in PLACES),
    *(
        (name, place)
        for name in ("luna-convolution", "convolution", "block-unordered")
        for place in ("encoder", "decoder")
    ),
    *(("luna-segments", place) for place in ("encoder", "source")),
]


def every(*places, without=()):
    """Runs a test with each attention, as ``name`` and ``place``."""
    found = [each for each in EVERY if each[1] in (places or PLACES) and each[0] not in without]
    return pytest.mark.parametrize(("name", "place"), found, ids=map("-".join, found))


def call(module, place, x, mask=None, source=None):
    """The output for ``x (T, B, C)``; ``mask`` is that of what is read: of ``x`` or, at the source, of ``source``."""
    if place == "source":
        return module(x, source, source_padding_mask=mask)[0]
    return module(x, padding_mask=mask)


def randn(steps, batch, seed=0):
    return torch.randn(steps, batch, SIZE, generator=torch.Generator().manual_seed(seed))

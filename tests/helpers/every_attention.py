"""Every attention as a module, called alike: those of the table, Luna's with learned slots, the pyramid's."""

from argparse import Namespace
from functools import partial

import pytest
import torch
from torch import nn

from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, PLACES, build_chosen_attention
from fairseq_luna.models.mixed.config import mixed_config
from fairseq_luna.modules import (
    BlockAttention,
    BlockCausalAttention,
    FastformerAttention,
    LunaAttention,
    LunaCausalAttention,
)
from fairseq_luna.modules.argument_checks import validate_padding
from fairseq_luna.modules.block_attention import WithinBlockAttention
from fairseq_luna.modules.declaration import declared_attentions
from fairseq_luna.modules.decoding_state import repeat_rows, select_rows
from fairseq_luna.ops.block_partition import cut_by_number
from fairseq_luna.ops.padding import Padding
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
    def forward(self, x, *, padding_mask=None):
        return super().forward(x, self.packed(x.shape[1]), padding_mask=padding_mask)[0]

    def step(self, x, padding, state):
        slots = self.slot_queries(self.packed(1))
        state = repeat_rows(self.initial_state(slots), x.shape[1]) if state is None else state
        out, _, state = super().step(x, padding, slots, None, state)
        return out, state


class LunaSource(WithSlots, LunaAttention):
    def forward(self, x, source, *, source_padding_mask=None, need_weights=False):
        padding = validate_padding(source_padding_mask, source, "source_padding_mask")
        cached = self.read_source(source, padding, need_weights=need_weights)
        return self.attend_to_source(x, cached, padding, need_weights=need_weights)

    def read_source(self, source, padding, *, need_weights=False):
        return super().read_source(self.packed(source.shape[1]), source, padding, need_weights=need_weights)[0]

    def attend_to_source(self, x, cached, padding, *, need_weights=False):
        return super().attend_to_source(x, cached, Padding(), need_weights=need_weights)


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
    return build_chosen_attention(mixed_config(Namespace(**cfg)), place)


def of_kinds(encoder, decoder, place, *, kernel_size=0, **options):
    """An attention with options that the table does not have."""
    module = (encoder if place == "encoder" else decoder)(embed_dim=SIZE, num_heads=2, **options)
    module.convolve(kernel_size)
    return module


fastformer = partial(of_kinds, FastformerAttention, partial(FastformerAttention, causal=True))
block = partial(of_kinds, BlockAttention, BlockCausalAttention)
VARIANTS = {
    "luna": luna,
    "luna-untied": partial(luna, tie_kv=False),
    "luna-convolution": partial(luna, tie_kv=False, kernel_size=3),
    "luna-segments": partial(luna, segment_bias=2.0),
    "block-unordered": partial(of_table, "block", unordered_blocks="mean"),
    "convolution": partial(of_table, "linear", attention_kernel_size=3),
    "transformer-xl-segments": partial(of_table, "transformer-xl", attention_chunk=8, attention_memory=12),
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
    **{name: attention.places for name, attention in ATTENTIONS.items()},
    **dict.fromkeys(("luna", "luna-untied"), tuple(PLACES)),
    **dict.fromkeys(("luna-convolution", "convolution", "block-unordered"), ("encoder", "decoder")),
    "transformer-xl-segments": ("encoder", "decoder"),
    "luna-segments": ("encoder", "source"),
    "pyramid": ("encoder",),
}
DECLARED_AS = {"pyramid": "block-pyramid", "convolution": "linear", "transformer-xl-segments": "transformer-xl"}


def declaration_of(name):
    """The declaration of an attention, for its traits; options of an attention do not change them."""
    declared = declared_attentions()
    return declared[DECLARED_AS.get(name, name if name in declared else name.split("-")[0])]


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


def every(*places, without=(), only=(), also=()):
    """Runs a test with each attention, as ``name`` and ``place``; with ``only``, with these names."""
    found = [each for each in [*EVERY, *also] if each[1] in (places or PLACES) and each[0] not in without]
    found = [each for each in found if not only or each[0] in only]
    return pytest.mark.parametrize(("name", "place"), found, ids=map("-".join, found))


def call(module, place, x, mask=None, source=None, kept=None):
    """The output for ``x (T, B, C)``; ``mask`` is that of what is read: of ``x`` or, at the source, of ``source``.

    With :class:`Kept`, ``x`` are the next steps of generation.
    """
    if kept is not None:
        return kept.next_steps(module, place, x, Padding.of(mask), source)
    if place == "source":
        return module(x, source, source_padding_mask=mask)[0]
    return module(x, padding_mask=mask)


class Kept:
    """The tensors that generation keeps for an attention: a decoder's state, or the cached source."""

    def __init__(self):
        self.value, self.padding = None, Padding()

    def next_steps(self, module, place, x, padding, source=None):
        if place == "source":
            if self.value is None:
                self.value, self.padding = module.read_source(source, padding), padding
            return module.attend_to_source(x, self.value, self.padding)[0]
        out, self.value = module.step(x, padding, self.value)
        return out

    def reorder(self, rows):
        self.value = select_rows(self.value, rows)


def in_steps(module, x, place="decoder", source=None):
    """The outputs ``(T, B, C)``, one step at a time."""
    kept = Kept()
    return torch.cat([call(module, place, step, source=source, kept=kept) for step in x.split(1)])


def randn(steps=STEPS, batch=BATCH, seed=0, size=SIZE):
    return torch.randn(steps, batch, size, generator=torch.Generator().manual_seed(seed))


def inputs(module, steps=STEPS, batch=BATCH, source_steps=None, seed=0):
    """A sequence and a source ``(T, B, C)``, of fp32."""
    source_steps = steps if source_steps is None else source_steps
    return randn(steps, batch, seed), randn(source_steps, batch, seed + 1, module.source_size)

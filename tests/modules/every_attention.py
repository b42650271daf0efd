"""Every attention of the table and Luna's as one module and one call, for tests that run all of them."""

import copy
from argparse import Namespace
from functools import cache, partial

import pytest
import torch
from torch import Tensor

from fairseq_luna.models.mixed.attentions import ATTENTIONS, PLACES, build_attention
from fairseq_luna.models.mixed.config import mixed_config
from fairseq_luna.modules import LunaAttention, LunaCausalAttention
from fairseq_luna.modules.block_pyramid import WithinBlockAttention
from fairseq_luna.ops.block_partition import cut_by_number
from numeric import sequences
from support import TINY

SIZE, STEPS, SLOTS = 16, 20, 2


def of_table(name, place):
    sizes = {"encoder_embed_dim": SIZE, "decoder_embed_dim": SIZE}
    return build_attention(mixed_config(Namespace(**{**TINY, **sizes, PLACES[place]: name})), place)


def luna(place, tie_kv):
    if place == "decoder":
        return LunaCausalAttention(embed_dim=SIZE, num_heads=2, tie_kv=tie_kv)
    return LunaAttention(embed_dim=SIZE, num_heads=2, num_packed_heads=2, tie_kv=tie_kv)


BUILD = {
    (name, place): partial(of_table, name, place)
    for name, attention in ATTENTIONS.items()
    for place in attention.factories()
}
BUILD |= {
    (name, place): partial(luna, place, tied)
    for name, tied in (("luna", True), ("luna-untied", False))
    for place in PLACES
}
BUILD["pyramid", "encoder"] = partial(WithinBlockAttention, embed_dim=SIZE, num_heads=2)
EVERY_ATTENTION = pytest.mark.parametrize(("name", "place"), BUILD, ids=map("-".join, BUILD))


@cache
def built(name, place):
    torch.manual_seed(0)
    return BUILD[name, place]()


def build(name, place):
    return copy.deepcopy(built(name, place))


def inputs(seed=0):
    """The sequence and the source ``(T, B, C)``, and packed slots."""
    shapes = (STEPS, 3, SIZE), (STEPS, 3, SIZE), (SLOTS, 3, SIZE)
    return tuple(x + seed * x.detach().roll(1, 0) for x in sequences(*shapes, dtype=torch.float32))


def call(module, name, place, x, source, packed, **state):
    """The output ``(T, B, C)`` for the whole sequence, or with ``state`` for a part of it.

    After the first part ``source`` and ``packed`` may be None.
    """
    if name == "pyramid":
        return module(x, blocks=cut_by_number(torch.zeros(x.shape[1::-1], dtype=torch.bool), 3))
    others = [packed] if name.startswith("luna") else []
    if place == "source" or (others and place == "encoder"):
        others.append(source if place == "source" else x)
    out = module(x, *others, **state)
    return out if isinstance(out, Tensor) else out[0]


def call_in_steps(module, name, place, x, source, packed, incremental_state):
    """The outputs ``(1, B, C)`` of the steps of generation, one after the other."""
    for t, step in enumerate(x.split(1)):
        others = (source, packed) if t == 0 else (None, None)
        yield call(module, name, place, step, *others, incremental_state=incremental_state)

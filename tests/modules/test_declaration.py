"""Declarations of attentions: flags that several declare, places, and the classes behind them."""

import pytest
import torch

from every_attention import randn
from fairseq_luna.modules import GatedDeltaAttention, LongformerAttention, NystromAttention, SoftmaxAttention
from fairseq_luna.modules.attention import CrossAttention, SelfAttention
from fairseq_luna.modules.declaration import PLACES, Flag, declared_attentions, merged
from fairseq_luna.usage_error import UsageError

DECLARED = declared_attentions()


def flag(**options):
    return Flag(**{"name": "window", "argument": "window", "help": "steps", "default": 16, "minimum": 1, **options})


def test_a_flag_of_one_default_keeps_it_and_names_its_attentions():
    both = merged([("local", flag()), ("wide", flag(help="distance"))])
    assert (both.default, both.help) == (16, "local: steps; wide: distance")


def test_a_flag_of_several_defaults_leaves_each_attention_its_own():
    both = merged([("local", flag()), ("wide", flag(default=512)), ("near", flag())])
    assert (both.default, both.help) == (None, "local, near: steps (default: 16); wide: steps (default: 512)")
    one = merged([("performer", flag(default=None, default_text="4 D"))])
    assert (one.default, one.help) == (None, "performer: steps (default: 4 D)")


def test_flags_of_different_kinds_cannot_share_a_name():
    with pytest.raises(ValueError, match="local and wide declare window with different values"):
        merged([("local", flag()), ("wide", flag(minimum=0))])


@pytest.mark.parametrize("name", DECLARED)
def test_an_attention_can_stand_somewhere_or_says_why_not(name):
    attention = DECLARED[name]
    assert all(attention.refusal(place) for place in PLACES if place not in attention.places)
    assert bool(attention.places) != bool(attention.architecture)
    assert all(set(each.places) & set(attention.places) for each in attention.flags)
    assert bool(attention.traits.decoder_state) == (
        "decoder" in attention.places or attention.architecture == "luna_base"
    )


@pytest.mark.parametrize("kind", [LongformerAttention, NystromAttention])
def test_an_attention_of_encoders_has_no_causal_form(kind):
    with pytest.raises(UsageError, match=f"^causal True: {kind.__name__} has no causal form; leave it out$"):
        kind(embed_dim=8, num_heads=2, causal=True)


@pytest.mark.parametrize("kind", [SoftmaxAttention, GatedDeltaAttention])
def test_an_attention_of_encoders_generates_nothing(kind):
    module = kind(embed_dim=8, num_heads=2)
    with pytest.raises(UsageError, match=r"^causal False: .*causal=True$"):
        module.step(randn(1, 2), None, None)


def test_both_forms_have_parameters_of_the_same_names_where_they_are_one_class():
    for attention in DECLARED.values():
        built = []
        for place in attention.places:
            options = {"embed_dim": 8, "num_heads": 2} if attention.has_heads else {"embed_dim": 8}
            torch.manual_seed(0)
            module = attention.constructor(place)(**options)
            assert isinstance(module, CrossAttention if place == "source" else SelfAttention)
            if place != "source":
                assert module.causal == (place == "decoder")
                built.append(module)
        if len(built) == 2 and type(built[0]) is type(built[1]):
            assert list(built[0].state_dict()) == list(built[1].state_dict())

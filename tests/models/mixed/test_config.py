"""Attentions chosen by name: what is refused, and which flags are read."""

from argparse import Namespace
from itertools import product

import pytest

from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, PLACES, build_chosen_attention
from fairseq_luna.models.mixed.config import OPTIONS, mixed_config
from fairseq_luna.models.shared.flag_checks import flag
from fairseq_luna.modules.declaration import declared_attentions
from fairseq_luna.usage_error import UsageError
from support import build_model, sentences

REFUSED = {
    (place, name): getattr(attention, place)
    for place, (name, attention) in product(PLACES, declared_attentions().items())
    if place not in attention.places
}
REFUSED |= {(place, "nope"): "there is no such attention" for place in PLACES}
READERS = [
    (field, place, name)
    for name, attention in ATTENTIONS.items()
    for place in attention.places
    for field in attention.arguments(place)
    if field in OPTIONS  # not a flag of fairseq's own
]


def refusal(**flags):
    with pytest.raises(ValueError) as refused:
        build_model("mixed", **flags)
    message = str(refused.value)
    assert "\n" not in message
    return message


def another_value(field):
    """A value of ``field`` that is not its default."""
    annotation, spec = OPTIONS[field]
    if isinstance(spec.default, bool):
        return not spec.default
    if isinstance(spec.default, str):
        return next(str(value) for value in annotation if value != spec.default)
    return (spec.default or 0) + 3


@pytest.mark.parametrize(("place", "name"), REFUSED)
def test_an_attention_where_it_cannot_stand_is_refused_with_those_that_can(place, name):
    message = refusal(**{PLACES[place]: name})
    assert message.startswith(f"{flag(PLACES[place])} {name}: {REFUSED[place, name]}; choose one of: ")
    for other in message.partition("choose one of: ")[2].split(", "):
        build_model("mixed", **{PLACES[place]: other})


@pytest.mark.parametrize("field", OPTIONS)
def test_a_flag_that_no_chosen_attention_reads_is_refused(field):
    readers = {(name, place) for read, place, name in READERS if read == field}
    message = refusal(**{field: another_value(field)})
    assert message.startswith(flag(field)) and message.endswith("leave the flag out")
    assert all(name in message and place in message for name, place in readers)


@pytest.mark.parametrize(("field", "place", "name"), READERS)
def test_a_flag_is_read_by_the_attentions_that_name_it(field, place, name):
    value = another_value(field)
    model = build_model("mixed", **{PLACES[place]: name, field: value})
    layer = (model.encoder if place == "encoder" else model.decoder).layers[0]
    attention = layer.encoder_attn if place == "source" else layer.self_attn
    argument = ATTENTIONS[name].arguments(place)[field]
    parts = [attention, *(getattr(attention, part) for part in ("feature_map", "pattern") if hasattr(attention, part))]
    assert [getattr(part, argument) for part in parts if hasattr(part, argument)] == [value]


@pytest.mark.parametrize(("field", "place", "name"), READERS)
def test_the_declared_default_is_the_default_of_the_module(field, place, name):
    """Given as a flag it builds the attention that is built without the flag."""
    declared = next(each for each in ATTENTIONS[name].flags if each.name == field)
    if declared.default is None:
        return
    cfg = {PLACES[place]: name, "encoder_embed_dim": 16, "decoder_embed_dim": 16}
    without, given = (
        build_chosen_attention(mixed_config(Namespace(**cfg, **flags)), place)
        for flags in ({}, {field: declared.default})
    )
    for part in ("feature_map", "pattern"):
        values = [getattr(getattr(each, part, each), declared.argument, None) for each in (without, given)]
        assert values[0] == values[1]
    assert [x.shape for x in without.state_dict().values()] == [x.shape for x in given.state_dict().values()]


@pytest.mark.parametrize("name", ["linformer", "synthesizer-dense"])
def test_a_sentence_that_is_too_long_for_an_attention_names_the_flag(name):
    model = build_model("mixed", encoder_self_attention=name, max_source_positions=5)
    with pytest.raises(UsageError, match=r"^--max-source-positions 5: .* and a sentence has 7; "):
        model.encoder(sentences(7))

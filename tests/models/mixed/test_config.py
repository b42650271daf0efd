"""Attentions chosen by name: what is refused, and which flags are read."""

import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from fairseq_luna import __file__ as package
from fairseq_luna.models.mixed.attentions import ATTENTIONS, PLACES
from fairseq_luna.models.mixed.config import OPTIONS
from fairseq_luna.models.transformer.checks import flag
from fairseq_luna.usage_error import UsageError
from support import build_model, sentences

REFUSED = {
    (place, name): getattr(ATTENTIONS[name], place)
    for place, name in product(PLACES, ATTENTIONS)
    if place not in ATTENTIONS[name].factories()
}
REFUSED |= {(place, "nope"): "there is no such attention" for place in PLACES}
READERS = [
    (field, place, name)
    for name, attention in ATTENTIONS.items()
    for place, factory in attention.factories().items()
    for field in factory.flags
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
    for able in message.partition("choose one of: ")[2].split(", "):
        build_model("mixed", **{PLACES[place]: able})


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
    argument = ATTENTIONS[name].factories()[place].flags[field]
    parts = [getattr(attention, part) for part in ("feature_map", "pattern") if hasattr(attention, part)]
    assert getattr(*parts or [attention], argument) == value


@pytest.mark.parametrize(
    ("name", "field", "value", "said"),
    [
        ("local", "attention_window", 0, "must be 1 or more"),
        ("sparse", "attention_chunk", 0, "must be 1 or more"),
        ("bigbird", "attention_chunk", -1, "must be 1 or more"),
        ("flash", "attention_chunk", 0, "must be 1 or more"),
        ("topk", "attention_topk", 0, "must be 1 or more"),
        ("reformer", "num_hashes", 0, "must be 1 or more"),
        ("performer", "redraw_features", -1, "must be 1 or more updates; or 0: never"),
        ("rfa", "num_features", 0, "must be 1 or more; leave it out for 64"),
        ("external", "num_slots", 0, "must be 1 or more"),
        ("block", "num_blocks", -1, "must be 1 or more, or 0 for the optimum"),
        ("fastformer", "fastformer_combine", "max", "choose product, sum or concat"),
        ("synthesizer-random", "max_source_positions", 20000, "synthesizer-random learns a score for each pair"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_value_that_an_attention_refuses_is_that_of_its_flag(name, field, value, said):
    with pytest.raises(UsageError) as refused:
        build_model("mixed", encoder_self_attention=name, **{field: value})
    assert str(refused.value).startswith(f"{flag(field)} {value}: {said}")
    assert flag(field) not in str(refused.value.__cause__)


@pytest.mark.parametrize("name", ["linformer", "synthesizer-dense"])
def test_a_sentence_that_is_too_long_for_an_attention_names_the_flag(name):
    model = build_model("mixed", encoder_self_attention=name, max_source_positions=5)
    with pytest.raises(UsageError, match=r"^--max-source-positions 5: .* and a sentence has 7; "):
        model.encoder(sentences(7))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"attention_kernel_size": 4}, "--attention-kernel-size 4: must be an odd number"),
        ({"cross_self_attention": True}, "--cross-self-attention: only luna supports it"),
        ({"no_cross_attention": True}, "--no-cross-attention: nothing would read the source"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_bad_values_are_refused(flags, said):
    assert refusal(**flags).startswith(said)


FOR_DECODERS = """
ATTENTIONS["toy"] = Attention("it sees no later word", Factory(SoftmaxCausalAttention), "it reads one sequence")
"""
USES = """
import fairseq_luna.models
from fairseq_luna.models.mixed.attentions import __file__ as table
from shared import by_name, variants
from support import build_model

assert table.startswith(str(sys.argv[1])), table
assert not [name for name in variants.READERS if "toy" in name] and "mixed-toy" in variants.VARIANTS
build_model("mixed", decoder_self_attention="toy")
try:
    build_model("mixed", encoder_self_attention="toy")
except ValueError as refusal:
    assert "--encoder-self-attention toy: it sees no later word; choose one of: " in str(refusal)
else:
    raise AssertionError("nothing was refused")
"""


def test_an_attention_for_decoders_alone(tmp_path):
    shutil.copytree(Path(package).parent, tmp_path / "fairseq_luna", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "fairseq_luna" / "models" / "mixed" / "attentions.py").open("a") as table:
        table.write(FOR_DECODERS)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-c", f"import sys{USES}", str(tmp_path)]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr

"""What a GPU is asked to do: operators, and numbers that are read from tensors. Neither depends on the machine."""

from argparse import Namespace

import pytest

from benchmarks import launches
from benchmarks.goals import LAUNCHES
from benchmarks.models import Sizes

# Layers and slots of the goals; channels and words change no count.
SIZES = Sizes(layers=6, embed_dim=64, ffn_dim=64, heads=8, slots=32, vocabulary=100)


@pytest.fixture(scope="module")
def counts():
    args = Namespace(device="cpu", dtype="bfloat16", length=25, sizes=SIZES)
    return {system: launches.counts(system, args) for system in ("transformer", *LAUNCHES)}


@pytest.mark.parametrize("phase", ["training", "decoding"])
@pytest.mark.parametrize("system", LAUNCHES)
def test_launches_stay_near_the_transformers(counts, system, phase):
    allowed = dict(zip(("training", "decoding"), LAUNCHES[system], strict=True))[phase]
    ours, theirs = (counts[name][f"{phase}_launches"] for name in (system, "transformer"))
    assert ours <= allowed * theirs


def test_luna_reads_a_number_in_the_encoder_and_in_the_decoder_and_none_in_generation(counts):
    assert counts["luna"]["training_synchronisations"] == 2
    assert counts["luna"]["decoding_synchronisations"] == 0

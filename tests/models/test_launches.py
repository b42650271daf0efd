"""The work that a GPU is given: operators, and numbers that are read from tensors. Neither depends on the machine."""

import pytest

import benchmark
from benchmarks import launches

# The most launches of a training step and of a decoding step over fairseq's transformer's, in base size.
LAUNCHES = {"luna": (1.17, 0.95), "fastformer": (1.3, 1.25), "block": (1.05, 1.25), "ssru": (1.02, 0.72)}


@pytest.fixture(scope="module")
def counts():
    small = ("--embed-dim=64", "--ffn-dim=64", "--vocabulary=100")  # channels and words change no count
    args = benchmark.parse(["launches", *small])
    return {system: launches.counts(system, args) for system in ("transformer", *LAUNCHES)}


@pytest.mark.parametrize("system", LAUNCHES)
def test_launches_stay_near_the_transformers(counts, system):
    for phase, allowed in zip(("training", "decoding"), LAUNCHES[system], strict=True):
        assert counts[system][phase] <= allowed * counts["transformer"][phase]


@pytest.mark.parametrize("system", LAUNCHES)
def test_a_number_is_read_in_the_encoder_and_in_the_decoder_and_none_in_generation(counts, system):
    assert counts[system]["training_reads"] == 2
    assert counts[system]["decoding_reads"] == 0

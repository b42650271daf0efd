"""Which numbers have goals, and when these are met."""

from argparse import Namespace
from typing import Any

import pytest

from benchmarks import goals, models, train

PLAIN = {"optimizer": "none", "source_length": None, "checkpoint_activations": False}
SMALL = Namespace(sizes=models.SMALL, reference="transformer", **PLAIN)
TINY = Namespace(sizes=models.TINY)
LARGE_APOLLO = Namespace(reference="adamw", parameters=65_000_000, tensors=200, device="cpu")


def changed(args: Namespace, **values: Any) -> Namespace:
    return Namespace(**{**vars(args), **values})


@pytest.mark.parametrize(
    ("sizes", "length", "batch", "system", "wanted"),
    [
        (models.SMALL, 25, 40, "luna", 1.15),
        (models.SMALL, 2048, 1, "luna", 0.33),
        (models.BASE, 25, 40, "block", 1.06),
        (models.TINY, 25, 40, "fastformer", 0.86),
    ],
)
def test_a_training_step(sizes: models.Sizes, length: int, batch: int, system: str, wanted: float) -> None:
    args = changed(SMALL, sizes=sizes)
    row = {"system": system, "length": length, "batch": batch, "ratio": wanted}
    assert goals.of_training(row, args) == [{"goal": f"time / transformer <= {wanted}", "reached": wanted, "met": True}]
    assert not goals.of_training({**row, "ratio": wanted + 0.01}, args)[0]["met"]
    for elsewhere in ({"batch": batch + 1}, {"length": length + 1}, {"system": "luna-untied"}):
        assert goals.of_training({**row, **elsewhere}, args) == []
    for other in ({"optimizer": "adam"}, {"reference": "luna-untied"}, {"source_length": 64}):
        assert goals.of_training(row, changed(args, **other)) == []


def test_memory_of_the_longest_sequence() -> None:
    row = {"system": "luna", "length": 65536, "peak_mib": 4096}
    assert [goal["met"] for goal in goals.of_training_memory(row, TINY)] == [True]
    assert [goal["met"] for goal in goals.of_training_memory({**row, "peak_mib": 4097}, TINY)] == [False]
    assert [goal["met"] for goal in goals.of_training_memory({**row, "peak_mib": None}, TINY)] == [False]
    assert goals.of_training_memory({**row, "length": 32768}, TINY) == []
    assert goals.of_training_memory(row, SMALL) == []


@pytest.mark.parametrize(("power", "met"), [(1, True), (1.1, False), (2, False)], ids=["linear", "more", "square"])
def test_memory_grows_as_the_length_does(power: float, met: bool) -> None:
    peaks = [train.Peak(length, 500 + 0.1 * length**power) for length in train.MEMORY_LENGTHS]
    row = {"system": "fastformer", "length": 65536, "peak_mib": 0} | train.growth(peaks)
    (goal,) = goals.of_training_memory(row, TINY)
    assert (goal["goal"], goal["met"]) == ("growth <= 1.05", met)


def test_growth_needs_measured_peaks() -> None:
    peaks = [train.Peak(length, 0.5 * length) for length in (1000, 2000, 4000)]
    assert train.growth(peaks[:1]) == {}
    assert train.growth(peaks[:2]) == {"kib_per_token": 512}
    assert train.growth(peaks) == {"kib_per_token": 512, "growth": 1}
    assert train.growth([*peaks[:2], train.Peak(4000, None)]) == {"kib_per_token": None, "growth": None}


@pytest.mark.parametrize(
    ("values", "met"),
    [
        ({}, [True, True, True]),
        ({"ratio": 0.23}, [False, True, True]),
        ({"last_over_first": 1.11}, [True, False, True]),
        ({"state_bytes_end": 65}, [True, True, False]),
        ({"length": 512}, [True, True]),
        ({"length": 64}, [True]),
        ({"system": "fastformer"}, [True]),
        ({"system": "block"}, []),
        ({"system": "block", "length": 25, "ratio": 1.05}, [True]),
    ],
    ids=str,
)
def test_generation(values: dict[str, Any], met: list[bool]) -> None:
    row = {"system": "luna", "length": 1024, "ratio": 0.22, "last_over_first": 1.1}
    row |= {"state_bytes_half": 64, "state_bytes_end": 64, **values}
    assert [goal["met"] for goal in goals.of_generation(row, changed(SMALL, sentences=4))] == met


def test_generation_beside_an_engine() -> None:
    row = {"system": "luna", "length": 512, "cpu_ratio": 0.5, "state_bytes_half": 64, "state_bytes_end": 64}
    args = Namespace(sizes=models.SMALL._replace(vocabulary=1600), sentences=4, reference="ctranslate2-float32")
    assert [goal["goal"] for goal in goals.of_generation(row, args)] == [
        "CPU time / CTranslate2 <= 0.5",
        "state at T / at T/2 <= 1",
    ]
    assert len(goals.of_generation(row, changed(args, reference="transformer"))) == 1


def test_launches() -> None:
    row = {"system": "luna", "training_ratio": 1.25, "decoding_ratio": 1.06}
    row |= {"training_synchronisations": 8, "decoding_synchronisations": 2}
    reference = {"system": "transformer", "training_synchronisations": 8, "decoding_synchronisations": 1}
    args = Namespace(sizes=models.BASE, length=25, dtype="bfloat16")
    assert [goal["met"] for goal in goals.of_launches(row, reference, args)] == [True, True, False, False]
    for other in ({"sizes": models.SMALL}, {"length": 26}, {"dtype": "float32"}):
        assert goals.of_launches(row, reference, changed(args, **other)) == []
    assert goals.of_launches(row, {**reference, "system": "luna"}, args) == []


def test_apollo() -> None:
    row = {"system": "apollo", "ratio": 1.3, "times_as_fast_as_one_by_one": 2.9}
    on_cuda = changed(LARGE_APOLLO, device="cuda")
    assert [goal["met"] for goal in goals.of_optimizer(row, LARGE_APOLLO)] == [True]
    assert [goal["met"] for goal in goals.of_optimizer(row, on_cuda)] == [True, False]
    assert [goal["met"] for goal in goals.of_optimizer({**row, "ratio": 1.31}, LARGE_APOLLO)] == [False]
    assert goals.of_optimizer({**row, "system": "sgd"}, LARGE_APOLLO) == []
    assert goals.of_optimizer(row, changed(LARGE_APOLLO, tensors=100)) == []


def test_goals_are_printed_and_counted() -> None:
    rows = [
        {"goals": [goals.at_most("ratio", 0.456789, 0.5), goals.at_least("times as fast", 2, 2.2)]},
        {"goals": [goals.at_most("peak MiB", None, 4096)]},
        {"goals": []},
    ]
    said = [goals.column().cell(row) for row in rows]
    assert said == [
        "ratio <= 0.5: 0.4568, met; times as fast >= 2.2: 2, missed",
        "peak MiB <= 4096: nothing, missed",
        "",
    ]
    assert goals.summary(rows) == "goals: 1 of 3 met"
    assert goals.summary([{"goals": []}, {}]) == ""

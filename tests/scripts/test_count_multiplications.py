"""Counts of multiplications equal the formulas that stand beside them."""

import importlib.util
from pathlib import Path

import pytest
import torch

import count_multiplications
from count_multiplications import ATTENTIONS, EMBED_DIM, SIZE, counted, counted_layer, first_length_below_softmax
from fairseq_luna.models.mixed.attentions import ATTENTIONS as BY_NAME
from fairseq_luna.models.mixed.attentions import able
from shared.by_name import encoder_attention

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib draws")


def test_heads_cost_what_the_formulas_say() -> None:
    for name in ("full", "luna", "fastformer"):
        n = 256
        assert counted(ATTENTIONS[name].run, torch.randn(1, 1, n, SIZE)) == 2 * SIZE * ATTENTIONS[name].scores(n)


@pytest.mark.parametrize("n", [128, 1024])
def test_layers_cost_what_the_formulas_say(n: int) -> None:
    d, projections = EMBED_DIM, 4 * n * EMBED_DIM**2
    assert counted_layer("softmax", n) == projections + 2 * n**2 * d
    assert counted_layer("linear", n) == projections + 2 * n * (SIZE + 1) * d
    features = 4 * SIZE
    assert (
        counted_layer("performer", n) == projections + 2 * n * features * d + n * features * (2 * SIZE + 2) * d // SIZE
    )


@pytest.mark.parametrize("name", able("encoder"))
def test_without_data_the_count_is_the_same(name: str) -> None:
    module = encoder_attention(name, embed_dim=EMBED_DIM, heads=EMBED_DIM // SIZE, longest=150)
    module.eval().requires_grad_(False)
    assert counted(module, torch.randn(150, 1, EMBED_DIM)) == counted_layer(name, 150)


def test_performer_is_below_softmax_from_twice_its_features_on() -> None:
    assert first_length_below_softmax("performer") == 2 * 4 * SIZE + 16
    assert first_length_below_softmax("softmax") is None


@needs_matplotlib
def test_the_table_and_the_picture_of_layers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tmp_path / "layers.png"
    names = ("softmax", "synthesizer-random")
    monkeypatch.setattr(count_multiplications, "BY_NAME", {name: BY_NAME[name] for name in names})
    assert count_multiplications.main(["--layers", "--png", str(target)]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    table = capsys.readouterr().out.splitlines()[-2:]
    assert table == [
        "| softmax | 0.56 | 0.75 | 1.50 | 4.50 |  |",
        "| synthesizer-random | 0.28 | 0.38 | 0.75 | refused | 16 |",
    ]

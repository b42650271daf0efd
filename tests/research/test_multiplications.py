"""Counts of multiplications equal the formulas that stand beside them."""

import pytest
import torch

from fairseq_luna.models.mixed.chosen_attentions import available_in
from research import multiplications as script
from research.multiplications import EMBED_DIM, SIZE, counted, counted_layer


def test_heads_cost_what_the_formulas_say(tmp_path, capsys):
    target = tmp_path / "counts.png"
    assert script.main(["--lengths", "128", "256", "--png", str(target)]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[4:]]
    assert [(row[0], row[2]) for row in rows] == [(f"| {n}", name) for n in (128, 256) for name in script.HEADS]
    for _, _, name, _, formula, count, _ in rows:
        assert formula == count or (name == "block" and int(count.replace(",", "")) > int(formula.replace(",", "")))


@pytest.mark.parametrize("n", [128, 1024])
def test_layers_cost_what_the_formulas_say(n):
    d, projections, features = EMBED_DIM, 4 * n * EMBED_DIM**2, 4 * SIZE
    assert counted_layer("softmax", n) == projections + 2 * n**2 * d
    assert counted_layer("linear", n) == projections + 2 * n * (SIZE + 1) * d
    of_features = n * features * (2 * SIZE + 2) * d // SIZE
    assert counted_layer("performer", n) == projections + 2 * n * features * d + of_features


# The convolution of ssd and gated-delta is counted there; on a CPU it is a sum of products, which are not.
@pytest.mark.parametrize("name", sorted(available_in("encoder").keys() - {"ssd", "gated-delta"}))
def test_without_data_the_count_is_the_same(name):
    assert counted(script.encoder_attention(name, 150), torch.randn(150, 1, EMBED_DIM)) == counted_layer(name, 150)


def test_the_table_of_layers(capsys):
    assert script.first_length_below_softmax("performer") == 2 * 4 * SIZE + 16
    flags = ["--layers", "--names", "softmax", "synthesizer-random", "--lengths", "128", "512", "2048", "8192"]
    assert script.main(flags) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "| softmax | 0.56 | 0.75 | 1.50 | 4.50 |  |",
        "| synthesizer-random | 0.28 | 0.38 | 0.75 | refused | 16 |",
    ]

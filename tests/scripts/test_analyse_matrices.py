"""Attention matrices are those of the modules, and their measures have the values of known matrices."""

import importlib.util
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import analyse_matrices
from fairseq_luna.modules.heads import merge_heads, split_heads
from matrices.extraction import NAMES, attention_matrices, has_a_matrix
from matrices.layers import inputs_of_layers
from matrices.measures import measures
from plots import reading
from shared.by_name import encoder_attention
from support import build_model, sentences

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib draws")


@torch.no_grad()
def assert_is_the_attention_of(module: torch.nn.Module, x: torch.Tensor) -> None:
    matrices, values = attention_matrices(module, x), split_heads(module.v_proj(x), module.num_heads)
    torch.testing.assert_close(module.out_proj(merge_heads(matrices @ values)), module(x), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_matrix_times_the_values_is_the_output(name: str) -> None:
    module = encoder_attention(name, embed_dim=24, heads=4, longest=70).double().eval()
    x = torch.randn(70, 1, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if name == "longformer":
        module.first_v_proj.load_state_dict(module.v_proj.state_dict())
    assert_is_the_attention_of(module, x)
    sums = attention_matrices(module, x).sum(-1)
    if name not in ("rfa", "linformer", "nystrom"):
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("kernel_size", [0, 3])
def test_the_layers_of_an_encoder_have_their_own_inputs(kernel_size: int) -> None:
    flags = {"encoder_self_attention": "linear", "attention_kernel_size": kernel_size}
    encoder = build_model("mixed", **flags).eval().double().encoder
    layers = inputs_of_layers(encoder, sentences(9))
    assert len(layers) == len(encoder.layers) and not layers[0][1].equal(layers[1][1])
    for attention, x in layers:
        assert_is_the_attention_of(attention, x)


def test_fastformer_and_luna_have_no_matrix() -> None:
    for family, able in (("luna", False), ("fastformer", False), ("mixed", True)):
        attention = build_model(family).encoder.layers[0].self_attn
        assert has_a_matrix(attention) is able


def test_measures_of_known_matrices() -> None:
    n = 12
    mean, one = torch.full((n, n), 1 / n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    halves = torch.block_diag(*[torch.full((n // 2, n // 2), 2 / n, dtype=torch.float64)] * 2)
    expected = {
        "rank": [1, n, 2],
        "effective_rank": [1, n, 2],
        "entropy": [1, 0, math.log(n / 2) / math.log(n)],
        "distance": [0, math.sqrt(n - 1), 1],
    }
    found = [measures(matrix[None]) for matrix in (mean, one, halves)]
    for name, values in expected.items():
        assert [each[name] for each in found] == pytest.approx(values, abs=1e-9)
    assert measures(torch.stack([mean, one]))["rank"] == (1 + n) / 2


@needs_matplotlib
def test_the_table_and_the_picture_of_random_weights(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "matrices.png"
    flags = ["--lengths", "8", "20", "--head-sizes", "4", "--heads=2", "--png", str(target)]
    assert analyse_matrices.main([*flags, "--names", "scores", "softmax", "linear"]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0].strip("| "), row[2]) for row in rows] == [
        (n, name) for n in ("8", "20") for name in ("scores", "softmax", "linear")
    ]
    ranks = [float(row[3]) for row in rows]
    assert ranks[::3] == ranks[2::3] == [4, 4]  # Q K^T and linear attention: at most D
    assert min(ranks[1::3]) > 4


@pytest.mark.parametrize("family", ["mixed", "fastformer"])
def test_the_table_of_a_checkpoint(family: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """The model in place of a checkpoint; tests of plot_attention.py load one."""
    model = build_model(family).eval()
    task = SimpleNamespace(source_dictionary=model.encoder.dictionary)
    monkeypatch.setattr(reading, "load", lambda checkpoint, data: (model, task))
    words = model.encoder.dictionary.symbols[4:9]
    status = analyse_matrices.main(["--checkpoint", "x.pt", "--source", " ".join(words), " ".join(words[:2])])
    out, err = capsys.readouterr()
    if family == "fastformer":
        assert (status, "FastformerAttention has no attention matrix" in err) == (2, True)
    else:
        rows = [line.split(" | ") for line in out.splitlines()[2:]]
        assert [(row[0], row[2]) for row in rows] == [
            (f"| {length}", f"layer {layer}") for length in (6, 3) for layer in (0, 1)
        ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--names", "external"], "--names external: has no attention matrix; choose among scores, softmax"),
        (["--source", "a b"], "--checkpoint and --source: give both or none"),
        (["--checkpoint", "missing.pt", "--source", "a b"], "missing.pt: there is no such file"),
        (["--checkpoint", "x.pt", "--source", "a b", "--lengths", "8"], "--lengths: is for random weights; leave it"),
        (["--sentencepiece-model", "x"], "--sentencepiece-model: is for --checkpoint; give that too"),
    ],
)
def test_refusals(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyse_matrices.main(flags) == 2
    assert said in capsys.readouterr().err

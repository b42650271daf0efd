"""Attention matrices are those of the modules, and their measures have the values of known matrices."""

import math
from types import SimpleNamespace

import pytest
import torch

from fairseq_luna.modules.multihead import merge_heads, split_heads
from research import matrices
from support import build_model, sentences


@torch.no_grad()
def assert_is_the_attention_of(module, x):
    read = x if module.convolution is None else module.convolution.centered(x)
    found, values = matrices.attention_matrices(module, x), split_heads(module.v_proj(read), module.num_heads)
    torch.testing.assert_close(module.out_proj(merge_heads(found @ values)), module(x), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", matrices.NAMES)
def test_the_matrix_times_the_values_is_the_output(name):
    module = matrices.encoder_attention(name, 4, 6, 70)
    x = torch.randn(70, 1, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if name == "longformer":
        module.first_v_proj.load_state_dict(module.v_proj.state_dict())
    assert_is_the_attention_of(module, x)
    sums = matrices.attention_matrices(module, x).sum(-1)
    if name not in ("rfa", "linformer", "nystrom"):
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("kernel_size", [0, 3])
def test_the_layers_of_an_encoder_have_their_own_inputs(kernel_size):
    flags = {"encoder_self_attention": "linear", "attention_kernel_size": kernel_size}
    layers = matrices.inputs_of_layers(build_model("mixed", **flags).eval().double().encoder, sentences(9))
    assert len(layers) == 2 and not layers[0][1].equal(layers[1][1])
    for attention, x in layers:
        assert_is_the_attention_of(attention, x)


def test_measures_of_known_matrices():
    n = 12
    mean, one = torch.full((n, n), 1 / n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    halves = torch.block_diag(*[torch.full((n // 2, n // 2), 2 / n, dtype=torch.float64)] * 2)
    expected = {
        **{"rank": [1, n, 2], "effective_rank": [1, n, 2], "distance": [0, math.sqrt(n - 1), 1]},
        "entropy": [1, 0, math.log(n / 2) / math.log(n)],
    }
    found = [matrices.measures(matrix[None]) for matrix in (mean, one, halves)]
    for name, values in expected.items():
        assert [each[name] for each in found] == pytest.approx(values, abs=1e-9)
    assert matrices.measures(torch.stack([mean, one]))["rank"] == (1 + n) / 2


def test_the_table_of_random_weights(capsys):
    flags = ["--lengths", "8", "20", "--head-sizes", "4", "--heads=2"]
    assert matrices.main([*flags, "--names", "scores", "softmax", "linear"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    names = [(n, name) for n in ("8", "20") for name in ("scores", "softmax", "linear")]
    assert [(row[0].strip("| "), row[2]) for row in rows] == names
    ranks = [float(row[3]) for row in rows]
    assert ranks[::3] == ranks[2::3] == [4, 4]  # Q K^T and linear attention: at most D
    assert min(ranks[1::3]) > 4


@pytest.mark.parametrize("family", ["mixed", "luna"])
def test_the_table_of_a_checkpoint(family, capsys, monkeypatch):
    translator = SimpleNamespace(models=[build_model(family).eval()], encode=lambda text: sentences(len(text))[0])
    monkeypatch.setattr("fairseq_luna.load", lambda checkpoint, data, pieces: translator)
    status = matrices.main(["--checkpoint", "x.pt", "--source", "abcdef", "abc"])
    out, err = capsys.readouterr()
    if family == "luna":
        assert (status, "LunaAttention has no attention matrix" in err) == (2, True)
    else:
        rows = [line.split(" | ")[:3] for line in out.splitlines()[2:]]
        assert rows == [[f"| {length}", "8", f"layer {layer}"] for length in (6, 3) for layer in (0, 1)]
    assert matrices.main(["--source", "a b"]) == matrices.main(["--names", "external"]) == 2

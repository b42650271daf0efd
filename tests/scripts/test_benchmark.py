"""The results of each benchmark, its refusals, and that no wrong function is measured."""

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import benchmark
from benchmarks import ctranslate2_engine, deployed_engine, encoder, generate, launches, models, op, optimizer, train
from benchmarks.attentions import ATTENTIONS
from fairseq_luna.modules import SoftmaxSourceAttention

TINY = ("--layers=1", "--embed-dim=16", "--ffn-dim=16", "--heads=2", "--slots=4", "--vocabulary=30")
SIZES = models.Sizes(layers=1, embed_dim=16, ffn_dim=16, heads=2, slots=4, vocabulary=30)
OP = ("op", "--lengths", "20", "33", "--heads=2", "--head-size=8", "--slots=4")
ENCODER = ("encoder", "--lengths", "8", "20", "--heads=2", "--embed-dim=8")
MODELS = list(models.SYSTEMS)
PLAIN = {"device": "cpu", "dtype": "float32", "sizes": SIZES, "source_length": None, "checkpoint_activations": False}
needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib draws")

TIMED = {
    *("system", "reference", "ms", "ms_q1", "ms_q3", "ratio", "ratio_q1", "ratio_q3", "ms_rounds"),
    *("cpu_ms", "cpu_ms_q1", "cpu_ms_q3", "cpu_ratio", "cpu_ratio_q1", "cpu_ratio_q3", "cpu_ms_rounds"),
}
FIELDS = {
    "op": TIMED | {"length", "state_bytes"},
    "encoder": TIMED | {"length"},
    "train": TIMED | {"length", "batch", "tokens_per_second", "us_per_token"},
    "generate": TIMED
    | {"length", "hypotheses", "seconds", "tokens_per_second", "times_as_fast", "first_ms", "last_ms"}
    | {"last_over_first", "cpu_last_over_first", "edge_tokens", "state_bytes_half", "state_bytes_end"},
    "optimizer": TIMED | {"parameters", "tensors", "state_bytes_per_parameter"},
}


def measured(folder: Path, *arguments: str) -> dict[str, Any]:
    """The JSON of a run."""
    target = folder / "measured.json"
    rounds = [] if arguments[0] == "launches" else ["--rounds=2"]
    assert benchmark.main([*arguments, *rounds, "--json", str(target)]) == 0
    return json.loads(target.read_text())


@pytest.mark.parametrize(
    ("arguments", "systems", "lengths"),
    [
        (OP, list(ATTENTIONS), [20, 33]),
        (ENCODER, encoder.SYSTEMS, [8, 20]),
        (("train", "--shapes=7x3", *TINY), MODELS, [7]),
        (
            ("generate", "--lengths", "8", "12", "--beam=2", "--sentences=2", "--source-length=5", *TINY),
            MODELS,
            [8, 12],
        ),
        (("optimizer", "--parameters=3000", "--tensors=5"), list(optimizer.SYSTEMS), [None]),
    ],
    ids=FIELDS,
)
def test_every_system_has_a_row_with_all_fields(
    arguments: tuple[str, ...],
    systems: list[str],
    lengths: list[int | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    content = measured(tmp_path, *arguments, "--no-peak")
    rows = content["rows"]
    assert [(row.get("length"), row["system"]) for row in rows] == [(n, name) for n in lengths for name in systems]
    for row in rows:
        assert row.keys() >= FIELDS[arguments[0]]
        assert {goal["goal"] for goal in row.get("goals", [])} <= {"state at T / at T/2 <= 1"}  # applies to any size
        assert 0 < row["ms_q1"] <= row["ms"] <= row["ms_q3"]
        assert 0 < row["cpu_ms_q1"] <= row["cpu_ms"] <= row["cpu_ms_q3"]
        assert (row["system"] != row["reference"]) or row["ratio"] == 1
    where = content["environment"]
    assert (where["torch"], where["device"], where["threads"]) == (torch.__version__, "cpu", 1)
    assert where["command"].startswith(f"python scripts/benchmark.py {arguments[0]} ")
    assert where.keys() >= {"python", "fairseq", "cpu", "cores", "date", "dtype"}
    assert content["finished"] is True
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(table) == 2 + len(rows)


def test_states_of_equal_size() -> None:
    """The same for linear attention as for as many random features as channels, and for as many of Luna's slots."""
    args = benchmark.parse(["op", "--head-size=8", "--heads=2", "--slots=4"])
    kernels = {op.state_bytes(name, args) for name in ("linear", "performer", "rfa", "efficient")}
    assert kernels == {4 * (2 * 8 * 9 + 1)}
    assert op.state_bytes("luna-chunked", args) == 4 * (2 * 2 * 4 * 8 + 1)
    assert op.state_bytes("luna-tied", args) == 4 * (2 * 4 * 8 + 1)
    assert op.state_bytes("softmax", args) is None


def test_the_memory_of_encoders_is_that_of_lengths_that_they_accept(tmp_path: Path, capsys) -> None:
    systems = ("softmax", "synthesizer-random", "topk")
    flags = ("--memory", "--lengths", "1000", "12000", "--heads=2", "--embed-dim=8", "--systems", *systems)
    args = benchmark.parse(["encoder", *flags])
    assert [encoder.accepts(name, args, 12000) for name in systems] == [True, False, True]
    assert "synthesizer-random is not measured: --max-source-positions 12000: " in capsys.readouterr().err
    args.lengths = [1000]
    rows = {row["system"]: row for row in encoder.rows(args)}
    assert rows["softmax"]["peak_ratio"] == 1 < rows["topk"]["peak_ratio"]  # it has all scores at once
    assert rows["topk"]["peak_mib"] > 2 * 1000**2 * 4 / 2**20
    assert benchmark.main(["encoder", *flags, "--no-peak"]) == 2


@pytest.mark.parametrize("command", ["train --shapes=7x3", "generate --lengths 8 --beam=2 --sentences=2"])
def test_a_variant_is_measured_if_it_is_named(command: str, tmp_path: Path, monkeypatch) -> None:
    named = ("--systems", "transformer", "luna-softmax-source")
    rows = measured(tmp_path, *command.split(), *named, "--no-peak", *TINY)["rows"]
    assert [row["system"] for row in rows] == list(named[1:])
    model = models.build(Namespace(**PLAIN), named[-1], SIZES, longest=8).model
    assert isinstance(model.decoder.layers[0].encoder_attn, SoftmaxSourceAttention)


@pytest.mark.parametrize("arguments", [("train", "--shapes=7x3"), ("generate", "--lengths", "8", "--source-length=5")])
def test_half_precision_is_measured_too(arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = (*arguments, *TINY, "--no-peak", "--dtype=bfloat16", "--systems", "transformer", "luna")
    assert len(measured(tmp_path, *flags)["rows"]) == 2


@pytest.mark.parametrize("engine", [ctranslate2_engine, deployed_engine])
def test_generation_of_an_engine_is_measured(engine: ModuleType, tmp_path: Path) -> None:
    if not engine.SYSTEMS:
        pytest.skip("the engine is not installed")
    named = ["transformer", *engine.SYSTEMS[:2]]
    flags = ("--lengths=8", "--source-length=5", "--beam=2", "--no-peak", "--systems", *named)
    assert [row["system"] for row in measured(tmp_path, "generate", *flags, *TINY)["rows"]] == named


def test_launches_and_numbers_read() -> None:
    weight = torch.ones(3, 3, requires_grad=True)

    def step() -> None:
        product = (weight @ weight).view(9)  # 1 launch
        assert product.sum() > 0  # 2, and a number
        product.backward(torch.empty(9))  # 2 products and their sum

    count = launches.counted(step)
    assert (count.launches, count.synchronisations) == (6, 1)
    assert count.multiplications == {torch.float32: 3 * 27}


def test_launches_of_every_system(tmp_path: Path) -> None:
    rows = measured(tmp_path, "launches", "--length=11", *TINY)["rows"]
    assert [row["system"] for row in rows] == MODELS
    for row in rows:
        assert row["training_launches"] > row["decoding_launches"] > row["reorder_launches"] > 0
        assert row["training_synchronisations"] >= row["decoding_synchronisations"] >= 0
    assert rows[0]["training_ratio"] == rows[0]["decoding_ratio"] == 1


@needs_matplotlib
def test_peak_memory_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "memory.png"
    flags = ("train", "--memory", "--lengths", "8", "1024", "--systems", "luna", *TINY, "--png", str(picture))
    short, long = measured(tmp_path, *flags)["rows"]
    assert long["peak_mib"] > short["peak_mib"] >= 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@needs_matplotlib
def test_time_is_drawn_against_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "time.png"
    measured(tmp_path, *OP, "--no-peak", "--png", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["transformer", "luna", "fastformer", "block", "softmax"])
def test_generation_is_recorded(name: str) -> None:
    args = Namespace(device="cpu", dtype="float32", lengths=[32], source_length=5, sentences=2, beam=3, sizes=SIZES)
    generation = generate.Generation(name, args)
    generation.step(32)()
    (run_of_32,) = generation.history
    half, end = run_of_32["state_bytes"][16], run_of_32["state_bytes"][32]  # both at the end of a block
    assert len(generation.decoder.starts) == 32
    assert (half < end) == (name in ("transformer", "block", "softmax"))
    assert half > 0
    assert min(*run_of_32["first"], *run_of_32["last"]) > 0


@pytest.mark.parametrize("name", train.OPTIMIZERS)
def test_an_optimizer_can_be_part_of_a_training_step(name: str) -> None:
    args = Namespace(**PLAIN, optimizer=name)
    step = train.TrainingStep("luna", args, train.Shape(7, 2))
    parameters = list(step.model.parameters())
    before = nn.utils.parameters_to_vector(parameters).clone()
    step()
    assert all(parameter.grad is not None for parameter in parameters)
    assert torch.equal(before, nn.utils.parameters_to_vector(parameters)) == (name == "none")


def test_sources_of_another_length_and_checkpointed_activations() -> None:
    args = Namespace(**{**PLAIN, "source_length": 5, "checkpoint_activations": True}, optimizer="none")
    step = train.TrainingStep("luna", args, train.Shape(7, 2))
    assert step.batch["net_input"]["src_tokens"].shape == (2, 5)
    assert step.batch["target"].shape == (2, 7)
    assert hasattr(step.model.encoder.layers[0], "precheckpoint_forward")
    step()
    assert all(parameter.grad is not None for parameter in step.model.parameters())


def test_state_bytes_of_the_optimizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured(tmp_path, "optimizer", "--parameters=3000", "--tensors=5", "--no-peak")["rows"]
    state = {row["system"]: row["state_bytes_per_parameter"] for row in rows}
    assert state["apollo"] == state["apollo-one-by-one"] == 12
    assert state["adamw"] == pytest.approx(8, abs=0.1)  # and a step for each tensor
    assert state["sgd"] == 0


@pytest.mark.parametrize(("total", "tensors"), [(65_000_000, 200), (3000, 5), (7, 7), (10, 1)])
def test_the_tensors_have_all_parameters(total: int, tensors: int) -> None:
    sizes = optimizer.sizes(total, tensors)
    assert (sum(sizes), len(sizes)) == (total, tensors)
    assert min(sizes) > 0


@pytest.mark.parametrize("name", ["luna-chunked", "luna-cumulative-sum", "fastformer", "block", "softmax"])
@pytest.mark.parametrize("wrong", ["output", "gradient", "nan"])
def test_a_wrong_function_is_not_measured(name, wrong, tmp_path, monkeypatch, capsys) -> None:
    attention = ATTENTIONS[name]

    def form(**inputs: torch.Tensor) -> torch.Tensor:
        out = attention.form(**inputs)
        if wrong == "output":
            return out * 1.01
        if wrong == "nan":
            return out * torch.nan
        nothing = inputs["k"] - inputs["k"].detach()  # only changes the gradient
        return out + 0.01 * F.pad(nothing, (0, out.shape[-1] - nothing.shape[-1]))

    monkeypatch.setitem(ATTENTIONS, name, attention._replace(form=form))
    target = tmp_path / "kept.json"
    target.write_text("earlier numbers")
    assert benchmark.main([*OP, "--no-peak", "--json", str(target)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith(f"benchmark.py: op {name}: the ")
    assert "differs from the naive form's by " in line
    assert wrong != "output" or "by 1.0e-02" in line
    assert wrong != "gradient" or "the gradient of k" in line
    assert target.read_text() == "earlier numbers"


def test_every_form_equals_its_naive_form_in_half_precision() -> None:
    args = Namespace(device="cpu", dtype="bfloat16", batch=2, heads=2, head_size=16, slots=4, systems=list(ATTENTIONS))
    op.check_outputs(args)


REFUSED = {
    "--rounds 0": ("op", "--rounds", "0"),
    "--threads": ("op", "--threads", "two"),
    "--systems": ("train", "--systems", "lune"),
    "named twice": ("train", "--systems", "luna", "luna", "--reference", "luna"),
    "--reference luna-naive: not among": ("op", "--systems", "softmax"),
    "--shapes": ("train", "--shapes", "25"),
    "25x0": ("train", "--shapes", "25x0"),
    "--memory --no-peak": ("train", "--memory", "--no-peak"),
    "--lengths 512: is for --memory": ("train", "--lengths", "512"),
    "--optimizer adam": ("train", "--optimizer", "adam", "--dtype", "bfloat16"),
    "--lengths 2": ("generate", "--lengths", "2"),
    "--beam 50": ("generate", "--beam", "50", "--vocabulary", "40"),
    "--encoder-attention-heads 3": ("train", "--heads", "3", "--shapes", "4x1", "--systems", "luna", "transformer"),
    "--tensors": ("optimizer", "--parameters", "5"),
    "there is no folder": ("op", "--json", "nowhere/x.json"),
    "is a folder": ("op", "--json", "."),
    "must end in .png": ("op", "--png", "picture.pdf"),
    "COMMAND": (),
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_flags_are_refused_in_one_line(words: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert benchmark.main([*REFUSED[words]]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("benchmark.py: ")
    assert words.replace("named twice", "name each once").replace("--rounds 0", "--rounds") in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize(
    "arguments",
    [
        OP,
        ENCODER,
        ("train", "--shapes=7x3", *TINY),
        ("generate", "--lengths", "8", "--source-length=5", *TINY),
        ("optimizer", "--parameters=3000", "--tensors=5"),
    ],
    ids=FIELDS,
)
def test_everything_is_measured_on_cuda(arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = measured(tmp_path, *arguments, "--device=cuda")
    assert content["environment"]["device"] == torch.cuda.get_device_name()
    assert all(row.keys() >= FIELDS[arguments[0]] and row["peak_mib"] >= 0 for row in content["rows"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device here")
def test_a_missing_device_is_refused_in_one_line(monkeypatch, capsys) -> None:
    assert benchmark.main(["op", "--device", "cuda"]) == 2
    assert capsys.readouterr().err.startswith("benchmark.py: --device cuda: torch ")


def test_measurements_before_an_interruption_are_kept(tmp_path: Path, monkeypatch) -> None:
    def interrupted(args: Namespace) -> Any:
        yield from [row for _, row in zip(range(3), op.rows(args), strict=False)]
        raise KeyboardInterrupt

    monkeypatch.setitem(benchmark.COMMANDS, "op", op.COMMAND._replace(rows=interrupted))
    target = tmp_path / "kept.json"
    assert benchmark.main([*OP, "--no-peak", "--json", str(target)]) == 130
    content = json.loads(target.read_text())
    assert (len(content["rows"]), content["finished"]) == (3, False)


def test_out_of_memory_is_one_line_and_keeps_earlier_measurements(tmp_path: Path, monkeypatch, capsys) -> None:
    def too_large(args: Namespace) -> Any:
        yield next(op.rows(args))
        torch.empty(2**60)

    monkeypatch.setitem(benchmark.COMMANDS, "op", op.COMMAND._replace(rows=too_large))
    target = tmp_path / "kept.json"
    assert benchmark.main([*OP, "--no-peak", "--json", str(target)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("benchmark.py: out of memory")
    assert len(json.loads(target.read_text())["rows"]) == 1


@pytest.mark.parametrize("command", [name for name in benchmark.COMMANDS if name != "launches"])
def test_quick_changes_only_defaults(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(*flags: str) -> Namespace:
        return benchmark.parse([command, *flags])

    usual, quick = vars(parsed()), vars(parsed("--quick"))
    assert {name for name in usual if usual[name] != quick[name]} == {"quick", *benchmark.COMMANDS[command].quick}
    assert quick["rounds"] < usual["rounds"] or max(quick["lengths"]) < max(usual["lengths"])
    assert parsed("--quick", "--rounds=7").rounds == 7

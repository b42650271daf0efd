"""The results of each benchmark, that no wrong function is measured, and how systems are compared."""

import functools
import json
import operator
import sys
from argparse import Namespace

import pytest
import torch

import benchmark
from benchmarks import engines, generate, launches, memory, op, optimizer, systems, timing, train, update
from fairseq_luna.modules import SoftmaxCrossAttention

TINY = ("--layers=1", "--embed-dim=16", "--ffn-dim=16", "--heads=2", "--slots=4", "--vocabulary=30")
COMMANDS = {
    "op": ("--lengths", "20", "33", "--heads=2", "--head-size=8", "--slots=4"),
    "train": ("--shapes=7x3", *TINY),
    "generate": ("--lengths", "8", "12", "--beam=2", "--sentences=2", "--source-length=5", *TINY),
    "optimizer": ("--parameters=3000", "--tensors=5"),
    "launches": ("--length=11", *TINY),
    "update": TINY,
}
FIELDS = {
    "op": {"length"},
    "train": {"length", "batch"},
    "generate": {"length", "first_ms", "last_ms", "state_bytes"},
    "optimizer": {"state_bytes"},
}
TIMED = {f"{clock}{key}{part}" for clock in ("", "cpu_") for key in ("ms", "ratio") for part in ("", "_q1", "_q3")}


def measured(folder, *arguments):
    """The JSON of a run."""
    target = folder / "measured.json"
    rounds = [] if arguments[0] in ("launches", "update") else ["--rounds=2"]
    assert benchmark.main([*arguments, *rounds, "--json", str(target)]) == 0
    return json.loads(target.read_text())


def parsed(command, *more):
    return benchmark.parse([command, *COMMANDS[command], *more])


@pytest.mark.parametrize("command", FIELDS)
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif("not torch.cuda.is_available()"))]
)
def test_every_system_has_a_row_with_all_fields(command, device, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", command])
    content = measured(tmp_path, command, *COMMANDS[command], "--no-peak", f"--device={device}")
    rows, names = content["rows"], sorted(benchmark.COMMANDS[command].SYSTEMS)
    for length in sorted({row.get("length", 0) for row in rows}):
        assert sorted(row["system"] for row in rows if row.get("length", 0) == length) == names
    for row in rows:
        assert row.keys() >= {"system", "reference"} | TIMED | FIELDS[command]
        assert 0 < row["ms_q1"] <= row["ms"] <= row["ms_q3"]
        assert (row["system"] != row["reference"]) or row["ratio"] == 1
    assert content["finished"] is True
    assert content["environment"]["command"] == f"python scripts/benchmark.py {command}"
    assert content["environment"].keys() >= {"torch", "python", "fairseq", "machine", "cores", "load", "date"}
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(table) == 2 + len(rows)


@pytest.mark.parametrize("command", ["train", "generate"])
def test_a_variant_is_measured_in_half_precision_if_it_is_named(command, tmp_path):
    named = ("--systems", "transformer", "luna-softmax-source")
    rows = measured(tmp_path, command, *COMMANDS[command], *named, "--no-peak", "--dtype=bfloat16")["rows"]
    assert {row["system"] for row in rows} == {*named[1:]}
    model, _, _ = systems.build(parsed(command), named[-1], longest=8)
    assert isinstance(model.decoder.layers[0].encoder_attn, SoftmaxCrossAttention)


def test_generation_of_engines_is_measured(tmp_path):
    wanted = ["ctranslate2-int8", "luna-deployed-int8"]
    named = ["transformer", *(name for name in wanted if name in engines.SYSTEMS)]
    content = measured(tmp_path, "generate", *COMMANDS["generate"], "--no-peak", "--systems", *named)
    assert {row["system"] for row in content["rows"]} == {*named}


@pytest.mark.parametrize("name", ["transformer", "luna", "fastformer", "block", "softmax"])
def test_generation_is_recorded(name):
    generation = generate.Generation(name, parsed("generate"))
    sizes = []
    for length in (16, 32):  # both at the end of a block
        generation.step(length)()
        sizes.append(generation.history[0]["state_bytes"])
    assert len(generation.decoder.starts) == 32
    assert (0 < sizes[0] < sizes[1]) == (name in ("transformer", "block", "softmax"))
    assert min(generation.history[0]["first"], generation.history[0]["last"]) > 0


@pytest.mark.parametrize("name", train.OPTIMIZERS)
def test_a_training_step_has_its_optimizer_lengths_and_checkpointing(name):
    args = parsed("train", f"--optimizer={name}", "--source-length=5", "--checkpoint-activations")
    step = train.TrainingStep("luna", args, train.Shape(7, 2))
    parameters = list(step.model.parameters())
    before = torch.nn.utils.parameters_to_vector(parameters).clone()
    step()
    assert (step.batch["net_input"]["src_tokens"].shape, step.batch["target"].shape) == ((2, 5), (2, 7))
    assert hasattr(step.model.encoder.layers[0], "precheckpoint_forward")
    assert all(parameter.grad is not None for parameter in parameters)
    assert torch.equal(before, torch.nn.utils.parameters_to_vector(parameters)) == (name == "none")


def test_the_optimizers_have_all_parameters_and_their_state():
    args = parsed("optimizer")
    assert [len(tensor) for tensor in optimizer.parameters(args)] == [659, 512, 659, 512, 658]
    rows = {row["system"]: row["state_bytes"] for row in optimizer.rows(Namespace(**{**vars(args), "no_peak": True}))}
    adamw = pytest.approx(8, abs=0.1)  # and a step for each tensor
    assert rows == {"adamw": adamw, "apollo": 12, "fairseq-adam": 8, "adam": 8}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", op.FORMS)
def test_every_form_is_the_same_function_as_the_naive_one(name, dtype):
    """At a length that is more than any chunk, and not a multiple of it: the output and all gradients."""
    args = parsed("op", f"--dtype={dtype}", "--batch=2")
    inputs = op.inputs_of(name, args, 300)
    naive = op.FORMS["luna-naive"][0]
    if name == "softmax":
        later = torch.ones(300, 300, dtype=torch.bool).triu(1)

        def naive(q, k, v):
            scores = (q @ k.mT / 8**0.5).float().masked_fill(later, -torch.inf)
            return (scores.softmax(-1) @ v.float()).to(q)

    computed, expected = (op.forward_and_backward(form, inputs) for form in (op.FORMS[name][0], naive))
    for ours, theirs in zip(computed, expected, strict=True):
        assert (ours - theirs).abs().max() <= {"float32": 1e-4, "bfloat16": 3e-2}[dtype] * theirs.abs().max()


def test_launches_and_numbers_read(tmp_path):
    weight = torch.ones(3, 3, requires_grad=True)

    def step():
        product = (weight @ weight).view(9)  # 1 launch
        assert product.sum() > 0  # 2, and a number
        product.backward(torch.empty(9))  # 2 products and their sum

    count = launches.counted(step)
    assert (count.launches, count.synchronisations) == (6, 1)
    assert count.multiplications == {torch.float32: 3 * 27}
    rows = measured(tmp_path, "launches", *COMMANDS["launches"])["rows"]
    assert [row["system"] for row in rows] == list(systems.SYSTEMS)
    assert all(row["training"] > row["decoding"] > row["reorder"] > 0 for row in rows)
    assert rows[0]["training_ratio"] == rows[0]["decoding_ratio"] == 1


def test_an_update_is_some_calls_for_any_number_of_tensors(tmp_path):
    """fairseq's functions make more for more tensors, but for the copies of one vector, whose parts are its own."""
    sizes = [flag for flag in TINY if not flag.startswith("--layers")]
    few, many = (measured(tmp_path, "update", *sizes, f"--layers={n}")["rows"] for n in (1, 2))
    assert [(row["system"], row["precision"]) for row in few] == [
        *(("adam", precision) for precision in update.PRECISIONS),
        *(("apollo", precision) for precision in update.PRECISIONS if precision != "fp16, one vector"),
    ]
    for small, large in zip(few, many, strict=True):
        assert small["operators"] == large["operators"] <= 60
        assert large["fairseq_operators"] - small["fairseq_operators"] >= large["tensors"] - small["tensors"] > 0
        assert large["operators"] <= large["kernels_32_kb"] <= large["kernels"] <= large["fairseq_kernels"]
        assert large["kernels_32_kb"] <= 75
        # The copies of a batch, the loss scale and the report, and the zeros of the gradients.
        assert 0 < large["besides_the_graph"] - large["kernels"] <= 12
        # A copy of each parameter's gradient, and the criterion.
        assert large["besides_a_graphed_model"] - large["kernels"] > large["tensors"] + 12


def test_events_of_the_profiler_are_no_kernels():
    with update.Count() as count, torch.autograd.profiler.record_function("a step"):
        torch.ones(2, device="meta") + 1
    assert count.operators == count.kernels[update.ROOM_4_KB] == 2


def test_kernels_of_a_multi_tensor_call():
    """By hand: a launch of one list has room for 110 tensors and for 320 blocks of 65,536 elements."""
    counts = {(1,) * 110: 1, (1,) * 111: 2, (320 * 2**16,): 1, (320 * 2**16 + 1,): 2, (0,) * 500: 0}
    counts |= {(1, 319 * 2**16): 1, (1, 320 * 2**16, 1): 2, (2**16 + 1,) * 110: 1, (2**17,) * 200: 2}
    assert {sizes: update.launched(sizes, 1, update.ROOM_4_KB) for sizes in counts} == counts
    x, half = (torch.empty(3, 2, device="meta", dtype=dtype) for dtype in (torch.float32, torch.float16))
    transposed = x.t().contiguous().t()
    for name, args, expected in (
        ("_foreach_add_", ([x, x], [x, x]), 1),
        ("_foreach_add_", ([x, x], [x, half]), 2),
        ("_foreach_add_", ([x, x], [x, transposed]), 2),
        ("_foreach_copy_", ([x, x], [half, half]), 1),
        ("_foreach_mul_", ([half] * 3, x.sum()), 3),
        ("_foreach_norm", ([x, x], 2), 3),
        ("mul", (x, x), 1),
    ):
        assert update.kernels(name, args, update.ROOM_4_KB) == expected


def test_only_peak_memory_of_modules_is_measured(tmp_path):
    named = ("--systems", "encoder-softmax", "encoder-topk", "--reference=encoder-softmax", "--lengths", "1000")
    rows = measured(tmp_path, "op", "--memory", *named, "--heads=2", "--head-size=4")["rows"]
    peak = {row["system"]: row["peak_mib"] for row in rows}
    assert peak["encoder-topk"] > 2 * 1000**2 * 4 / 2**20 > peak["encoder-softmax"]  # it has all scores at once
    assert rows[1]["peak_ratio"] > 1 and "ms" not in rows[1]


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (MemoryError(), 1)])
def test_measurements_before_an_end_are_kept(error, status, tmp_path, monkeypatch, capsys):
    def interrupted(args):
        yield {"system": "softmax"}
        raise error

    monkeypatch.setattr(op, "rows", interrupted)
    target = tmp_path / "kept.json"
    assert benchmark.main(["op", *COMMANDS["op"], "--json", str(target)]) == status
    content = json.loads(target.read_text())
    assert (len(content["rows"]), content["finished"]) == (1, False)


def peak_of(step, *args):
    return memory.peak_mib(functools.partial, step, *args, device="cpu", threads=1)


def prepared_with(held, size):
    """A step that fills ``size`` bytes while ``held`` more are allocated and as many were just freed."""
    freed = b"y" * held
    del freed
    return functools.partial(lambda kept, size: b"x" * size, b"z" * held, size)


def test_the_peak_is_what_the_step_adds():
    size = 50 * 2**20
    assert memory.peak_mib(prepared_with, 4 * size, size, device="cpu", threads=1) == pytest.approx(50, abs=4)
    assert peak_of(operator.mul, b"x", 2**50) is None
    with pytest.raises(ZeroDivisionError):
        peak_of(operator.truediv, 1, 0)


def taken(monkeypatch, own, rounds, slowness):
    """The times of steps that take ``own`` seconds on a machine that other work slows, by the number of the step."""
    order = []

    def seconds(step):
        wall = slowness(len(order)) * own[step()]
        return wall, own[order[-1]]

    monkeypatch.setattr(timing, "seconds", seconds)
    steps = {name: lambda name=name: order.append(name) or name for name in own}
    return timing.in_turn(steps, rounds), order


def test_systems_are_measured_in_turn_and_compared_within_a_round(monkeypatch):
    own = {"a": 3, "b": 2, "c": 2}
    times, order = taken(monkeypatch, own, 3, lambda number: 10 ** (number // 3))  # slower with each round
    assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    row = timing.compared(times, "b")["a"]
    assert [row[key] for key in ("ratio", "ratio_q1", "ratio_q3", "cpu_ratio", "cpu_ms")] == [1.5, 1.5, 1.5, 1.5, 3000]
    assert row["ms_rounds"] == [3000, 30_000, 300_000]
    times, _ = taken(monkeypatch, dict.fromkeys("abc", 1), 4, lambda number: 1.1**number)  # slower with each step
    assert timing.compared(times, "a")["c"]["ratio"] == pytest.approx(1, abs=0.03)  # one order alone: 1.21
    times = {"a": [(1, 1), (10, 1), (3, 1)], "b": [(2, 1), (2, 1), (30, 1)]}
    row = timing.compared(times, "b")["a"]
    assert (row["ratio"], row["ms"]) == (0.5, 3000)  # of 0.5, 5 and 0.1; the ratio of the medians is 1.5

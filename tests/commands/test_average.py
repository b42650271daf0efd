"""The mean of trained checkpoints, its refusals, and that no code in a file is run."""

import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fairseq_luna.models  # noqa: F401 (torch.load of fairseq's checkpoints)
from commands import APOLLO, FAMILIES, generate, train
from fairseq_luna.__main__ import main
from fairseq_luna.commands import averaging
from fairseq_luna.commands.average import last
from fairseq_luna.commands.averaging import average
from fairseq_luna.commands.output import save
from fairseq_luna.usage_error import UsageError

_TRANSFORMER = (
    *("--arch=transformer", "--encoder-layers=1", "--decoder-layers=1", "--encoder-embed-dim=16"),
    *("--encoder-ffn-embed-dim=16", "--encoder-attention-heads=2", "--decoder-attention-heads=2"),
    # Without it fairseq 0.12.2 cannot translate a batch of several lengths with this torch.
    "--encoder-normalize-before",
    "--share-all-embeddings",
)


def train_three(data: str, folder: Path, *flags: str) -> list[Path]:
    """Checkpoints after 2, 4 and 6 updates."""
    train(data, folder, *flags, *APOLLO, "--max-update=6", "--save-interval-updates=2", "--disable-validation")
    return last(folder, 3, by_updates=True)


@pytest.fixture(scope="module")
def trained(tiny_data: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Path]]:
    """Three checkpoints of a family, trained once."""
    made: dict[str, list[Path]] = {}

    def of(family: str) -> list[Path]:
        if family not in made:
            flags = FAMILIES.get(family, _TRANSFORMER)
            made[family] = train_three(tiny_data, tmp_path_factory.mktemp(family), *flags)
        return made[family]

    return of


@pytest.fixture
def three(trained: Callable[[str], list[Path]]) -> list[Path]:
    return trained("luna")


def read(path: Path) -> dict[str, Any]:
    return torch.load(path, weights_only=True)


def rewritten(path: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A changed copy of a checkpoint."""
    state = read(path)
    change(state)
    torch.save(state, target)
    return target


def expected_mean(paths: list[Path]) -> dict[str, Tensor]:
    models = [read(path)["model"] for path in paths]
    return {
        name: torch.stack([model[name].double() for model in models]).mean(0).to(weight.dtype)
        for name, weight in models[0].items()
    }


def assert_is_mean(model: dict[str, Tensor], paths: list[Path]) -> None:
    expected = expected_mean(paths)
    assert list(model) == list(expected)
    for name, weight in model.items():
        # fairseq 0.12.2 has copies of weights that are never initialised.
        torch.testing.assert_close(weight, expected[name], rtol=1.2e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("family", [*FAMILIES, "transformer"])
def test_the_mean_of_a_trained_family_translates(
    family: str,
    trained: Callable[[str], list[Path]],
    tiny_data: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths, output = trained(family), tmp_path / "mean.pt"
    arguments = [str(paths[0].parent), "--last", "3", "--by-updates", "--output", str(output)]
    assert main(["average", *arguments]) == 0
    assert [path.name for path in paths] == ["checkpoint_1_2.pt", "checkpoint_1_4.pt", "checkpoint_1_6.pt"]
    state = read(output)
    assert_is_mean(state["model"], paths)
    newest = read(paths[-1])
    assert not state["model"]["decoder.layers.0.fc1.weight"].equal(newest["model"]["decoder.layers.0.fc1.weight"])
    assert "last_optimizer_state" not in state
    assert state["cfg"] == newest["cfg"]
    assert state["extra_state"]["averaged_checkpoints"] == [str(path) for path in paths]
    capsys.readouterr()
    generate(tiny_data, str(output))
    assert len(re.findall(r"^H-\d+\t", capsys.readouterr().out, flags=re.M)) == 7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_half_precision_is_kept_and_summed_in_fp32(dtype: torch.dtype, three: list[Path], tmp_path: Path) -> None:
    def halve(state: dict[str, Any]) -> None:
        state["model"] = {name: weight.to(dtype) for name, weight in state["model"].items()}
        # 2048 + 1 is 2048 in fp16, and 60000 + 60000 is infinite.
        state["model"]["decoder.layers.0.fc1.bias"] = torch.tensor([2048.0, 60000.0, 1.0]).to(dtype)

    paths = [rewritten(path, tmp_path / path.name, halve) for path in three]
    rewritten(paths[-1], paths[-1], lambda state: state["model"]["decoder.layers.0.fc1.bias"].fill_(4.0))
    averaged = average(paths)["model"]
    assert {weight.dtype for weight in averaged.values()} == {dtype}
    assert averaged["decoder.layers.0.fc1.bias"].isfinite().all()
    for name, expected in expected_mean(paths).items():
        assert torch.equal(averaged[name].nan_to_num(), expected.nan_to_num()), name


def test_tied_weights_stay_one_tensor(three: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "mean.pt"
    assert main(["average", *map(str, three), "--output", str(output)]) == 0
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    model = read(output)["model"]
    assert len({model[name].data_ptr() for name in names}) == 1


def test_counters_are_the_last_checkpoints(three: list[Path], tmp_path: Path) -> None:
    def count(updates: int) -> Callable[[dict[str, Any]], None]:
        return lambda state: state["model"].update(seen=torch.tensor(updates), mask=torch.tensor([updates > 2]))

    paths = [rewritten(path, tmp_path / path.name, count(number)) for number, path in enumerate(three, 1)]
    averaged = average(paths)["model"]
    assert averaged["seen"].equal(torch.tensor(3))
    assert averaged["mask"].equal(torch.tensor([True]))


def test_random_directions_are_the_last_checkpoints(three: list[Path], tmp_path: Path) -> None:
    def draw(number: int) -> Callable[[dict[str, Any]], None]:
        name = "encoder.layers.0.self_attn.directions"
        return lambda state: state["model"].update({name: torch.full((2, 3), float(number))})

    paths = [rewritten(path, tmp_path / path.name, draw(number)) for number, path in enumerate(three, 1)]
    averaged = average(paths)["model"]
    assert averaged["encoder.layers.0.self_attn.directions"].equal(torch.full((2, 3), 3.0))
    assert list(averaged) == list(read(paths[0])["model"])


def test_means_over_updates_and_the_criterion_are_averaged_too(tiny_data: str, tmp_path: Path) -> None:
    paths = train_three(tiny_data, tmp_path, *FAMILIES["luna"], "--store-ema", "--ema-decay=0.5", "--ema-fp32")
    for number, path in enumerate(paths):
        rewritten(
            path, path, lambda state, number=number: state.update(criterion={"scale": torch.tensor([number * 1.0])})
        )
    averaged = average(paths)
    assert averaged["criterion"]["scale"].equal(torch.ones(1))
    assert_is_mean(averaged["model"], paths)
    for kind in ("ema", "ema_fp32_params"):
        each = [read(path)["extra_state"][kind] for path in paths]
        assert list(averaged["extra_state"][kind]) == list(each[0])
        for name, weight in averaged["extra_state"][kind].items():
            expected = torch.stack([weights[name].double() for weights in each]).mean(0).to(weight.dtype)
            torch.testing.assert_close(weight, expected, rtol=1.2e-7, atol=0, equal_nan=True)
        assert not averaged["extra_state"][kind]["decoder.layers.0.fc1.weight"].equal(
            each[-1]["decoder.layers.0.fc1.weight"]
        )


@pytest.mark.parametrize(("number", "kind"), [(float("nan"), "NaN"), (float("inf"), "an infinite number")])
@pytest.mark.parametrize("place", ["model", "ema"])
def test_a_diverged_checkpoint_is_refused(
    number: float, kind: str, place: str, three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def diverge(state: dict[str, Any]) -> None:
        state["extra_state"]["ema"] = {name: weight.clone() for name, weight in state["model"].items()}
        weights = state["model"] if place == "model" else state["extra_state"]["ema"]
        weights["decoder.layers.0.fc1.weight"][0, 0] = number

    odd, output = rewritten(three[1], tmp_path / "odd.pt", diverge), tmp_path / "mean.pt"
    assert main(["average", str(three[0]), str(odd), "--output", str(output)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    name = "decoder.layers.0.fc1.weight" if place == "model" else "ema decoder.layers.0.fc1.weight"
    assert line.startswith(f"fairseq-luna average: {odd}: there is {kind} in {name}, as after a training that diverged")
    assert not output.exists()


def test_one_model_at_a_time_is_in_memory_besides_the_sums(three: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    load = averaging.load

    def watched(path: Path) -> dict[str, Any]:
        alive.append(sum(weight() is not None for weight in loaded))
        state = load(path)
        loaded.extend(weakref.ref(weight) for weight in state["model"].values())
        return state

    monkeypatch.setattr(averaging, "load", watched)
    average([*three, *three])
    assert alive == [0] * 6
    assert len(loaded) > 6


def test_the_last_checkpoints_have_the_highest_numbers(tmp_path: Path) -> None:
    for name in ("1", "2", "9", "10", "11", "_best", "_last", "_2_900", "_10_1000", "_9_8000", "_3_10000", "11-shard0"):
        (tmp_path / f"checkpoint{name}.pt").touch()
    assert [path.name for path in last(tmp_path, 3)] == ["checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt"]
    by_updates = [path.name for path in last(tmp_path, 3, by_updates=True)]
    assert by_updates == ["checkpoint_10_1000.pt", "checkpoint_9_8000.pt", "checkpoint_3_10000.pt"]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of the refusal."""
    capsys.readouterr()
    assert main(["average", *map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err.removesuffix("\n").removeprefix("fairseq-luna average: ")


def test_too_few_checkpoints_are_refused_with_their_number(
    three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = three[0].parent, ("--output", tmp_path / "mean.pt")
    assert refusal(capsys, folder, "--last", 4, "--by-updates", *output) == (
        f"--last 4: {folder} has 3 update checkpoints (checkpoint_E_U.pt)"
    )
    assert refusal(capsys, folder, "--last", 2, *output) == (
        f"--last 2: {folder} has 0 epoch checkpoints (checkpointN.pt) and 3 update checkpoints (checkpoint_E_U.pt): "
        "give --by-updates for those"
    )
    for count in (0, "x"):
        line = refusal(capsys, folder, "--last", count, "--by-updates", *output)
        assert line == f"argument --last: '{count}' must be a whole number of 1 or more"
    assert refusal(capsys, three[0], "--last", 2, *output) == (
        f"--last 2: {three[0]} is a file; give its folder, {folder}, or leave --last out"
    )
    assert refusal(capsys, folder / "none", "--last", 2, *output) == f"{folder / 'none'}: there is no such folder"
    assert (
        refusal(capsys, folder, three[0], "--last", 2, *output) == f"--last 2: give one folder, not {folder} {three[0]}"
    )
    assert refusal(capsys, folder, *output) == f"{folder} is a folder: give --last N for the last N checkpoints in it"
    assert refusal(capsys, three[0], "--by-updates", *output) == "--by-updates: only with --last N"
    assert "is given twice" in refusal(capsys, three[0], three[1], three[0], *output)


_NAME = "decoder.layers.0.fc1.bias"


@pytest.mark.parametrize(
    "change, said",
    [
        (
            lambda state: state["model"].pop(_NAME),
            "{path}: has other weights than {first}: {name} is in {first} and not",
        ),
        (lambda state: state["model"].update(new=torch.zeros(1)), "new is in {path} and not in {first}"),
        (lambda state: state["model"].update({_NAME: torch.zeros(17)}), "{path}: {name} has shape (17,), and (16,) in"),
        (lambda state: state["model"].update({_NAME: torch.zeros(16).half()}), "{name} has dtype torch.float16, and"),
        (lambda state: state["cfg"]["model"].update(_name="luna_base"), "{path}: its --arch is luna_base, and luna_ti"),
        (
            lambda state: state["cfg"]["model"].update(encoder_attention_heads=4),
            "its --encoder-attention-heads is 4, a",
        ),
        (
            lambda state: state["model"].update({"decoder.embed_tokens.weight": torch.zeros(24, 16)}),
            "decoder.embed_tokens.weight and encoder.embed_tokens.weight differ, but are one tensor in {first}",
        ),
    ],
    ids=["missing", "added", "shape", "dtype", "arch", "heads", "untied"],
)
def test_a_different_model_is_refused_with_the_first_difference(
    change: Callable[[dict[str, Any]], object],
    said: str,
    three: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = rewritten(three[1], tmp_path / "other.pt", change)
    output = tmp_path / "mean.pt"
    line = refusal(capsys, three[0], other, "--output", output)
    assert said.format(path=other, first=three[0], name=_NAME) in line
    assert not output.exists()


def test_another_dropout_is_accepted(three: list[Path], tmp_path: Path) -> None:
    other = rewritten(three[1], tmp_path / "other.pt", lambda state: state["cfg"]["model"].update(dropout=0.9))
    assert_is_mean(average([three[0], other])["model"], [three[0], other])


class Payload:
    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.touched,)


def test_a_payload_is_refused_and_never_run(
    three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touched = tmp_path / "touched"
    evil = rewritten(three[1], tmp_path / "evil.pt", lambda state: state.update(extra_state=Payload(touched)))
    line = refusal(capsys, three[0], evil, "--output", tmp_path / "mean.pt")
    assert line.startswith(f"{evil} was refused: it holds ")
    assert not touched.exists()


@pytest.mark.parametrize(
    "broken_of",
    [lambda whole: whole[: len(whole) // 2], lambda whole: b"", lambda whole: b"Not a checkpoint.\n"],
    ids=["truncated", "empty", "text"],
)
def test_a_broken_file_is_named(
    broken_of: Callable[[bytes], bytes], three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, output = tmp_path / "broken.pt", tmp_path / "mean.pt"
    assert refusal(capsys, three[0], broken, "--output", output) == f"{broken}: there is no such file"
    broken.write_bytes(broken_of(three[1].read_bytes()))
    line = refusal(capsys, three[0], broken, "--output", output)
    assert line.startswith(f"{broken} is not a fairseq checkpoint or is damaged")
    assert not output.exists()


@pytest.mark.parametrize(
    "content", [[1, 2], {"model": {}}, {"model": {}, "optimizer_history": [{}], "extra_state": {}}]
)
def test_a_file_without_a_model_is_refused(content: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.pt"
    torch.save(content, file)
    assert refusal(capsys, file, "--output", tmp_path / "mean.pt").startswith(str(file))


def test_no_file_is_overwritten_without_force(
    three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = three[1].read_bytes()
    assert "that is one of the checkpoints" in refusal(capsys, *three, "--output", three[1], "--force")
    assert three[1].read_bytes() == before
    output = tmp_path / "mean.pt"
    output.write_text("precious")
    assert refusal(capsys, *three, "--output", output) == (
        f"--output {output}: it exists; give another name, or --force"
    )
    broken = tmp_path / "broken.pt"
    broken.touch()
    refusal(capsys, three[0], broken, "--output", output, "--force")
    assert output.read_text() == "precious"
    assert main(["average", *map(str, three), "--output", str(output), "--force"]) == 0
    assert_is_mean(read(output)["model"], three)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.pt", "mean.pt"]
    assert "there is no folder" in refusal(capsys, *three, "--output", tmp_path / "none" / "mean.pt")


def test_a_failed_write_leaves_no_file(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(state: object, file: Path) -> None:
        file.write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc] . unexpected pos 64 vs 0\nmore")

    state = average(three)
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UsageError, match=r"^--output .*unexpected pos 64 vs 0$"):
        save(state, tmp_path / "mean.pt")
    assert list(tmp_path.iterdir()) == []

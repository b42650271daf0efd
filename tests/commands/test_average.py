"""The mean of trained checkpoints, and its refusals."""

import re
import shlex
import shutil
import weakref
from pathlib import Path

import pytest
import torch

import fairseq_luna.models  # noqa: F401 (torch.load of fairseq's checkpoints)
from commands import APOLLO, FAMILIES, TRANSFORMER, generate, train
from fairseq_luna.commands import checkpoint_mean
from fairseq_luna.commands.average import last_checkpoints
from fairseq_luna.commands.checkpoint_mean import average
from fairseq_luna.files import save_checkpoint
from fairseq_luna.loading import load_translator
from fairseq_luna.usage_error import UsageError
from own_command import refused, shown

WEIGHT, BIAS = "decoder.layers.0.fc1.weight", "decoder.layers.0.fc1.bias"
MODELS = {
    "luna": (*FAMILIES["luna"], "--store-ema", "--ema-decay=0.5", "--ema-fp32"),
    # Without normalization before, fairseq 0.12.2 cannot translate a batch of several lengths with this torch.
    "transformer": (*TRANSFORMER, "--encoder-normalize-before", "--share-all-embeddings"),
}


@pytest.fixture(scope="module")
def trained(tiny_data, tmp_path_factory):
    """Checkpoints of each model after 2, 4 and 6 updates."""
    flags = (*APOLLO, "--max-update=6", "--save-interval-updates=2", "--disable-validation")
    folders = {name: tmp_path_factory.mktemp(name) for name in MODELS}
    for name, folder in folders.items():
        train(tiny_data, folder, *MODELS[name], *flags)
    return {name: last_checkpoints(folder, 3, by_updates=True) for name, folder in folders.items()}


@pytest.fixture
def three(trained):
    return trained["luna"]


def read(path):
    return torch.load(path, weights_only=True)


def rewritten(path, target, change):
    """A changed copy of a checkpoint."""
    state = read(path)
    change(state)
    torch.save(state, target)
    return target


def assert_is_mean(averaged, each):
    """Of these dictionaries of weights."""
    assert list(averaged) == list(each[0])
    for name, weight in averaged.items():
        expected = torch.stack([weights[name].double() for weights in each]).mean(0).to(weight.dtype)
        # fairseq 0.12.2 has copies of weights that are never initialized.
        torch.testing.assert_close(weight, expected, rtol=1.2e-7, atol=0, equal_nan=True)
    assert not averaged[WEIGHT].equal(each[-1][WEIGHT])


@pytest.mark.parametrize("model", MODELS)
def test_the_mean_of_a_trained_model_translates(model, trained, tiny_data, tmp_path, capsys):
    paths, output = trained[model], tmp_path / "mean.pt"
    assert [path.name for path in paths] == ["checkpoint_1_2.pt", "checkpoint_1_4.pt", "checkpoint_1_6.pt"]
    shown(capsys, "average", paths[0].parent, "--last", "3", "--by-updates", "--output", output)
    state, each = read(output), [read(path) for path in paths]
    assert_is_mean(state["model"], [one["model"] for one in each])
    assert "last_optimizer_state" not in state and state["cfg"] == each[-1]["cfg"]
    assert state["extra_state"]["averaged_checkpoints"] == [str(path) for path in paths]
    tied = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    assert len({state["model"][name].data_ptr() for name in tied}) == 1
    for mean in ("ema", "ema_fp32_params") if model == "luna" else ():
        assert_is_mean(state["extra_state"][mean], [one["extra_state"][mean] for one in each])
    generate(tiny_data, str(output))
    assert len(re.findall(r"^H-\d+\t", capsys.readouterr().out, flags=re.M)) == 7


@pytest.mark.parametrize("elsewhere", [True, False])
def test_the_next_command_finds_the_data(elsewhere, three, tiny_data, tmp_path, monkeypatch, capsys):
    """The training's path to its data was relative to a folder that has moved: it leads there from the inputs alone."""
    shutil.copytree(tiny_data, tmp_path / "moved" / "data")
    (tmp_path / "moved" / "checkpoints").mkdir()
    (tmp_path / "here").mkdir()

    def relative(state):
        state["cfg"]["task"]["data"], state["cfg"]["checkpoint"]["save_dir"] = "data", "checkpoints"

    file = rewritten(three[0], tmp_path / "moved" / "checkpoints" / "one.pt", relative)
    monkeypatch.chdir(tmp_path / "here")
    output = Path("mean.pt") if elsewhere else file.with_name("mean.pt")
    words = shlex.split(shown(capsys, "average", file, "--output", output).splitlines()[-1])
    assert words[1] == "translate" and Path(words[2]).resolve() == output.resolve()
    assert words[3:] == (["--data", str(tmp_path / "moved" / "data")] if elsewhere else [])
    assert load_translator(words[2], data=words[4] if elsewhere else None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_half_precision_is_kept_and_summed_in_fp32(dtype, three, tmp_path):
    def halve(state):
        state["model"] = {name: weight.to(dtype) for name, weight in state["model"].items()}
        # 2048 + 1 is 2048 in fp16, and 60000 + 60000 is infinite.
        state["model"][BIAS] = torch.tensor([2048.0, 60000.0, 1.0]).to(dtype)

    paths = [rewritten(path, tmp_path / path.name, halve) for path in three]
    rewritten(paths[-1], paths[-1], lambda state: state["model"][BIAS].fill_(4.0))
    averaged = average(paths)["model"]
    assert {weight.dtype for weight in averaged.values()} == {dtype}
    assert averaged[BIAS].isfinite().all()
    assert_is_mean(averaged, [read(path)["model"] for path in paths])


def test_numbers_without_a_mean_are_the_last_checkpoints_and_the_criterion_is_averaged(three, tmp_path):
    def count(number):
        own = {"seen": torch.tensor(number), "mask": torch.tensor([number > 2])}
        own["encoder.layers.0.self_attn.directions"] = torch.full((2, 3), float(number))
        return lambda state: (state["model"].update(own), state.update(criterion={"scale": own["seen"] * 1.0}))

    paths = [rewritten(path, tmp_path / path.name, count(number)) for number, path in enumerate(three, 1)]
    averaged = average(paths)
    assert averaged["model"]["seen"].equal(torch.tensor(3))
    assert averaged["model"]["mask"].equal(torch.tensor([True]))
    assert averaged["model"]["encoder.layers.0.self_attn.directions"].equal(torch.full((2, 3), 3.0))
    assert averaged["criterion"]["scale"].equal(torch.tensor(2.0))
    assert list(averaged["model"]) == list(read(paths[0])["model"])


@pytest.mark.parametrize(("number", "kind"), [(float("nan"), "NaN"), (float("inf"), "an infinite number")])
@pytest.mark.parametrize("place", ["", "ema "])
def test_a_diverged_checkpoint_is_refused(number, kind, place, three, tmp_path, capsys):
    def diverge(state):
        weights = state["extra_state"]["ema"] if place else state["model"]
        weights[WEIGHT] = torch.full_like(weights[WEIGHT], number)

    odd, output = rewritten(three[1], tmp_path / "odd.pt", diverge), tmp_path / "mean.pt"
    line = refused(capsys, "average", three[0], odd, "--output", output)
    assert line.startswith(f"{odd}: there is {kind} in {place}{WEIGHT}, so the training probably diverged")
    assert not output.exists()


def test_one_model_at_a_time_is_in_memory_besides_the_sums(three, monkeypatch):
    loaded, alive, read_checkpoint = [], [], checkpoint_mean.read_checkpoint

    def watched(path, **options):
        alive.append(sum(weight() is not None for weight in loaded))
        state = read_checkpoint(path, **options)
        loaded.extend(weakref.ref(weight) for weight in state["model"].values())
        return state

    monkeypatch.setattr(checkpoint_mean, "read_checkpoint", watched)
    average([*three, *three])
    assert alive == [0] * 6
    assert len(loaded) > 6


def test_a_later_checkpoint_that_is_left_out_is_named(trained, tmp_path, capsys):
    names = {"checkpoint_1_2.pt": 0, "checkpoint_1_4.pt": 1, "checkpoint_last.pt": 1}
    for name, number in names.items():
        shutil.copy(trained["transformer"][number], tmp_path / name)
    arguments = ("average", tmp_path, "--last", "2", "--by-updates", "--force", "--output", tmp_path / "mean.pt")
    assert "Note" not in shown(capsys, *arguments)
    shutil.copy(trained["transformer"][2], tmp_path / "checkpoint_last.pt")
    later = "checkpoint_last.pt was trained further, to update 6, and is not part of this average"
    assert later in shown(capsys, *arguments)
    (tmp_path / "checkpoint_last.pt").write_bytes(b"damaged")
    assert "the mean of checkpoint_1_2.pt, checkpoint_1_4.pt" in shown(capsys, *arguments)


def test_the_last_checkpoints_have_the_highest_numbers(tmp_path):
    for name in ("1", "2", "9", "10", "11", "_best", "_last", "_2_900", "_10_1000", "_9_8000", "_3_10000", "11-shard0"):
        (tmp_path / f"checkpoint{name}.pt").touch()
    assert [path.name for path in last_checkpoints(tmp_path, 3)] == [
        "checkpoint9.pt",
        "checkpoint10.pt",
        "checkpoint11.pt",
    ]
    by_updates = [path.name for path in last_checkpoints(tmp_path, 3, by_updates=True)]
    assert by_updates == ["checkpoint_10_1000.pt", "checkpoint_9_8000.pt", "checkpoint_3_10000.pt"]


@pytest.mark.parametrize(
    ("given", "said"),
    {
        "{folder} --last 4 --by-updates": "--last 4: {folder} has 3 update checkpoints (checkpoint_E_U.pt); give",
        "{folder} --last 2": "--last 2: {folder} has 0 epoch checkpoints (checkpointN.pt) and 3 update checkpoints"
        " (checkpoint_E_U.pt): give --by-updates for those",
        "{folder} --last 0 --by-updates": "argument --last: '0' must be a whole number of 1 or more",
        "{folder} --last x --by-updates": "argument --last: 'x' must be a whole number of 1 or more",
        "{first} --last 2": "--last 2: {first} is a file; give its folder, {folder}, or leave --last out",
        "{none} --last 2": "{none}: there is no such folder",
        "{folder} {first} --last 2": "--last 2: give one folder, not {folder} {first}",
        "{folder}": "{folder} is a folder: give --last N for the last N checkpoints in it",
        "{first} --by-updates": "--by-updates: only with --last N",
        "{first} {second} {first}": "{first} is given twice",
        "{first} {none}": "{none}: there is no such checkpoint",
        "{first} {text}": "{text} is not a fairseq checkpoint or is damaged",
        "{list}": "{list}: has no model",
        "{empty}": "{empty}: has no model",
    }.items(),
)
def test_what_cannot_be_averaged_is_refused_in_one_line(three, tmp_path, capsys, given, said):
    names = {"folder": three[0].parent, "first": three[0], "second": three[1]}
    names |= {name: tmp_path / name for name in ("none", "text", "list", "empty")}
    names["text"].write_text("Not a checkpoint.\n")
    torch.save([1, 2], names["list"])
    torch.save({**read(three[0]), "model": {}}, names["empty"])
    output = tmp_path / "mean.pt"
    line = refused(capsys, "average", *(part.format(**names) for part in given.split()), "--output", output)
    assert line.startswith(said.format(**names))
    assert not output.exists()


# Changes of the weights and of the model's settings in the second checkpoint; None removes.
OTHERS = {
    "missing": ({BIAS: None}, {}, "{path}: has other weights than {first}: {name} is in {first} and not in {path}"),
    "added": (
        {"new": torch.zeros(1)},
        {},
        "{path}: has other weights than {first}: new is in {path} and not in {first}",
    ),
    "shape": ({BIAS: torch.zeros(17)}, {}, "{path}: {name} has shape (17,), and (16,) in {first}"),
    "dtype": ({BIAS: torch.zeros(16).half()}, {}, "{path}: {name} has dtype torch.float16, and torch.float32 in"),
    "arch": ({}, {"_name": "luna_base"}, "{path}: its --arch is luna_base, and luna_tiny in {first}"),
    "heads": ({}, {"encoder_attention_heads": 4}, "{path}: its --encoder-attention-heads is 4, and 2 in {first}"),
    "untied": (
        *({"decoder.embed_tokens.weight": torch.zeros(24, 16)}, {}),
        "{path}: decoder.embed_tokens.weight and encoder.embed_tokens.weight differ, but are one tensor in {first}",
    ),
}


@pytest.mark.parametrize(("weights", "settings", "said"), OTHERS.values(), ids=OTHERS)
def test_a_different_model_is_refused_with_the_first_difference(weights, settings, said, three, tmp_path, capsys):
    def change(state):
        state["cfg"]["model"].update(settings)
        model = {**state["model"], **weights}
        state["model"] = {name: weight for name, weight in model.items() if weight is not None}

    other = rewritten(three[1], tmp_path / "other.pt", change)
    line = refused(capsys, "average", three[0], other, "--output", tmp_path / "mean.pt")
    assert line.startswith(said.format(path=other, first=three[0], name=BIAS))


def test_another_dropout_is_accepted(three, tmp_path):
    other = rewritten(three[1], tmp_path / "other.pt", lambda state: state["cfg"]["model"].update(dropout=0.9))
    assert average([three[0], other])["model"]


@pytest.mark.parametrize(("lacks", "said"), [("untie_luna_kv", None), ("encoder_attention_heads", "is 4, and 2 in")])
def test_a_setting_that_an_older_release_did_not_save_is_its_default(lacks, said, three, tmp_path, capsys):
    older = rewritten(three[1], tmp_path / "older.pt", lambda state: state["cfg"]["model"].pop(lacks))
    command = ("average", three[0], older, "--output", tmp_path / "mean.pt")
    assert said in refused(capsys, *command) if said else shown(capsys, *command)


def test_no_file_is_overwritten_without_force(three, tmp_path, capsys):
    before, output, broken = three[1].read_bytes(), tmp_path / "mean.pt", tmp_path / "broken.pt"
    said = refused(capsys, "average", *three, "--output", three[1], "--force")
    assert "that is an input" in said and three[1].read_bytes() == before
    output.write_text("precious")
    broken.touch()
    said = refused(capsys, "average", *three, "--output", output)
    assert said == f"--output {output}: it exists; give another name, or --force"
    refused(capsys, "average", three[0], broken, "--output", output, "--force")
    assert output.read_text() == "precious"
    shown(capsys, "average", *three, "--output", output, "--force")
    assert read(output)["model"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.pt", "mean.pt"]
    assert "there is no folder" in refused(capsys, "average", *three, "--output", tmp_path / "none" / "mean.pt")


def test_a_failed_write_leaves_no_file(tmp_path, monkeypatch):
    def full(state, file):
        file.write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc] . unexpected pos 64 vs 0\nmore")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UsageError, match=r"^--output .*unexpected pos 64 vs 0$"):
        save_checkpoint({"model": {}}, tmp_path / "mean.pt")
    assert list(tmp_path.iterdir()) == []

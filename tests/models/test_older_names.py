"""Flags and parameters that once had another name, which is still read from command lines, YAML and checkpoints."""

import shlex
from argparse import ArgumentParser

import pytest
import torch
from fairseq import checkpoint_utils, models, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf

import commands
import fairseq_luna
from fairseq_luna.checkpoint_files import NO_PARAMETER
from fairseq_luna.commands.checkpoint_mean import average
from fairseq_luna.usage_error import UsageError
from own_command import shown
from support import CLOSE, PAD, build_model, golden, translation_task

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

OLDER = {"luna_tiny": "luna", "fastformer_tiny": "fastformer", "block_tiny": "block", "luna_roberta_tiny": "luna"}
EVERY_FAMILY = pytest.mark.parametrize(("arch", "word"), OLDER.items())
CONVOLUTION = "encoder.layers.0.self_attn.convolution.weight"


def config(arch, *flags):
    """The model's config that fairseq-train has for these flags."""
    arguments = ["data", f"--arch={arch}", *flags]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments)).model


def kernels(cfg):
    """The shapes of the convolutions' kernels."""
    task = translation_task()
    task.max_positions = lambda: 20
    state = models.build_model(cfg, task).state_dict()
    return {tuple(weight.shape) for name, weight in state.items() if ".convolution." in name}


@EVERY_FAMILY
def test_a_command_line_and_a_yaml_may_have_the_older_name(arch, word):
    assert kernels(config(arch, f"--{word}-kernel-size=3")) == kernels(config(arch, "--attention-kernel-size=3"))
    assert kernels(config(arch, f"--{word}-kernel-size=3")) == {(128, 3)}
    assert kernels(OmegaConf.create({"_name": arch, f"{word}_kernel_size": 3})) == {(128, 3)}
    assert kernels(config(arch, f"--{word}-kernel-size=3", "--attention-kernel-size=3")) == {(128, 3)}


@EVERY_FAMILY
@pytest.mark.parametrize("given", [(3, 5), (0, 5)])
def test_two_values_are_refused_by_both_names(arch, word, given):
    flags = (f"--{word}-kernel-size={given[0]}", f"--attention-kernel-size={given[1]}")
    for order in (1, -1):
        with pytest.raises(UsageError) as refusal:
            kernels(config(arch, *flags[::order]))
        names = f"--{word}-kernel-size {given[0]}, --attention-kernel-size {given[1]}: "
        assert str(refusal.value).startswith(names)


@EVERY_FAMILY
def test_the_help_has_todays_name_alone(arch, word):
    parser = ArgumentParser()
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    assert "--attention-kernel-size" in parser.format_help()
    assert f"--{word}-kernel-size" not in parser.format_help()


@pytest.fixture(scope="module", params=["luna", "fastformer", "block"])
def trained(request, tiny_data, tmp_path_factory):
    """A family, its checkpoint, and the same as it was saved before the name changed."""
    folder = tmp_path_factory.mktemp(request.param)
    flags = (*commands.FAMILIES[request.param], *commands.APOLLO, "--attention-kernel-size=3")
    new = commands.train(tiny_data, folder, *flags, "--max-update=2", "--disable-validation")
    state = torch.load(new, weights_only=True)
    state["cfg"]["model"][f"{request.param}_kernel_size"] = state["cfg"]["model"].pop("attention_kernel_size")
    torch.save(state, folder / "older.pt")
    return request.param, new, folder / "older.pt"


def test_a_checkpoint_is_read_by_every_command(trained, tiny_data, tmp_path, capsys):
    family, new, older = trained
    texts = [fairseq_luna.load(path, data=tiny_data).translate("w1 w2 w3") for path in (new, older)]
    assert texts[0] == texts[1]
    averaged = average([new, older])
    assert averaged["model"][CONVOLUTION].equal(torch.load(new, weights_only=True)["model"][CONVOLUTION])

    start = tmp_path / "start.pt"
    arch = "luna_tiny" if family == "luna" else f"{family}_tiny"
    *_, line = shown(capsys, "convert", older, f"--arch={arch}", f"--output={start}").splitlines()
    words = shlex.split(line)
    assert "--attention-kernel-size=3" in words
    assert f"--{family}-kernel-size" not in line
    commands.run("train", *words[1:], "--cpu", "--max-update=1", "--num-workers=0", "--disable-validation")


def test_a_training_goes_on_with_either_name(trained, tiny_data, tmp_path):
    family, _, older = trained
    resumed = []
    for word in ("attention", family):
        flags = (*commands.FAMILIES[family], *commands.APOLLO, f"--{word}-kernel-size=3", f"--restore-file={older}")
        resumed.append(commands.train(tiny_data, tmp_path / word, *flags, "--max-update=3", "--disable-validation"))
    states = [checkpoint_utils.load_checkpoint_to_cpu(str(path)) for path in resumed]
    assert [state["optimizer_history"][-1]["num_updates"] for state in states] == [3, 3]
    assert states[0]["model"][CONVOLUTION].equal(states[1]["model"][CONVOLUTION])


CONVOLVED = golden("convolved.pt")
EVERY_CONVOLVED = pytest.mark.parametrize("recorded", CONVOLVED.values(), ids=CONVOLVED)


def build_convolved(recorded):
    return build_model("mixed", words=10, seed=7, **recorded["flags"]).eval()


@EVERY_CONVOLVED
@torch.no_grad()
def test_a_model_with_a_convolution_is_loaded_with_its_older_parameter_names(recorded):
    assert any(".self_attn.attention." in name for name in recorded["model"])
    model, source = build_convolved(recorded), recorded["source"]
    model.load_state_dict(dict(recorded["model"]), strict=True)
    logits = model(source, source.ne(PAD).sum(1), recorded["prefix"])[0]
    torch.testing.assert_close(logits, recorded["logits"], **CLOSE)
    # The optimizer's state has no names but this order.
    todays = [name.replace(".self_attn.attention.", ".self_attn.") for name in recorded["parameters"]]
    assert [name for name, _ in model.named_parameters()] == todays


@pytest.fixture(scope="module")
def convolved(tiny_data, tmp_path_factory):
    """A checkpoint of a model with a convolution, and the same with the older parameter names."""
    folder = tmp_path_factory.mktemp("convolved")
    attentions = ("--encoder-self-attention=linear", "--decoder-self-attention=rfa", "--store-ema", "--ema-fp32")
    flags = ("--arch=mixed_tiny", *commands.SIZES, *commands.APOLLO, *attentions, "--attention-kernel-size=3")
    new = commands.train(tiny_data, folder, *flags, "--max-update=2", "--disable-validation")
    state = torch.load(new, weights_only=True)
    for place in (state, state["extra_state"]):
        for part in {"model", "ema", "ema_fp32_params"} & place.keys():
            place[part] = {
                name if ".convolution." in name else name.replace(".self_attn.", ".self_attn.attention."): weight
                for name, weight in place[part].items()
            }
    torch.save(state, folder / "older.pt")
    return flags, new, folder / "older.pt"


def test_every_command_reads_older_parameter_names(convolved, tiny_data, tmp_path, capsys):
    _, new, older = convolved
    texts = [fairseq_luna.load(path, data=tiny_data).translate("w1 w2 w3") for path in (new, older)]
    assert texts[0] == texts[1]
    state = torch.load(new, weights_only=True)
    for paths in ([older, new], [new, older]):
        mean = average(paths)
        for found, expected in ((mean, state), (mean["extra_state"], state["extra_state"])):
            for part in {"model", "ema", "ema_fp32_params"} & expected.keys():
                assert list(found[part]) == list(expected[part])
                assert all(weight.equal(expected[part][name]) for name, weight in found[part].items())
    starts = []
    for path in (new, older):
        start = tmp_path / f"{path.stem}.pt"
        shown(capsys, "convert", path, "--arch=mixed_tiny", "--encoder-self-attention=softmax", f"--output={start}")
        starts.append(torch.load(start, weights_only=True)["model"])
    assert starts[0].keys() == starts[1].keys()
    copied = [name for name in starts[0] if "encoder.layers.0.self_attn." in name]
    assert copied and all(starts[0][name].equal(starts[1][name]) for name in copied)


def test_a_training_goes_on_with_older_parameter_names(convolved, tiny_data, tmp_path):
    flags, *paths = convolved
    models = []
    for path in paths:
        restored = (*flags, f"--restore-file={path}", "--max-update=3", "--disable-validation")
        models.append(
            torch.load(commands.train(tiny_data, tmp_path / path.stem, *restored), weights_only=True)["model"]
        )
    assert models[0].keys() == models[1].keys()
    parameters = [name for name in models[0] if not NO_PARAMETER.search(name)]
    assert all(models[0][name].equal(models[1][name]) for name in parameters)

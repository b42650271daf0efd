"""Flags that once had another name, which is still read from command lines, YAML and checkpoints, and never shown."""

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
from fairseq_luna.commands.averaging import average
from fairseq_luna.usage_error import UsageError
from own_command import shown
from support import translation_task

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

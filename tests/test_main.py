"""``fairseq-luna``: its help, its errors, its report; and the ways of naming the plugin to fairseq's commands."""

import logging
import re
import shlex
import signal
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import fairseq_luna
import fairseq_luna.models
from fairseq_luna import compat
from fairseq_luna.__main__ import main, parser_of
from fairseq_luna.commands import COMMANDS, info, translate
from fairseq_luna.commands.shell_commands import program, shortest
from own_command import refused, shown

PACKAGE = Path(fairseq_luna.__file__).parent


@pytest.mark.parametrize("asked", [(), ("--help",), ("-h",)])
def test_the_help_has_every_command_in_the_order_of_use(asked, capsys):
    text = shown(capsys, *asked)
    expected = ["prepare", "fairseq-train", "translate", "score", "average", "convert", "export", "info"]
    assert re.findall(r"^    ([\w-]+) ", text, flags=re.M) == expected
    assert set(COMMANDS) == {*expected} - {"fairseq-train"}
    assert max(map(len, text.splitlines())) <= 120


def test_every_command_is_listed():
    files = {path.stem for path in (PACKAGE / "commands").glob("*.py")}
    with_flags = {name for name in files if hasattr(import_module(f"fairseq_luna.commands.{name}"), "run")}
    assert with_flags == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example_that_its_parser_takes(name, capsys):
    text = re.sub(r" \\\n +", " ", shown(capsys, name, "--help"))  # examples of two lines
    examples = re.findall(rf"^    (?:.*\| )?(fairseq-luna {name}\b.*)$", text, flags=re.M)
    assert examples
    for example in examples:
        _, _, *given = shlex.split(example.partition(" < ")[0].partition(" > ")[0])
        assert "--help" in given or parser_of(name, given).parse_args(given)


def test_a_required_flag_is_not_in_brackets(capsys):
    usage = shown(capsys, "score", "--help").partition("\n\n")[0]
    assert " --reference FILE" in usage and "[--reference" not in usage


def test_wrong_use_is_refused_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(translate, "end_at_signals", lambda: None)
    assert (
        refused(capsys, "tranlate")
        == f"fairseq-luna: tranlate: did you mean translate? the commands are {', '.join(COMMANDS)}"
    )
    said = refused(capsys, "train", "data")
    assert said.startswith("fairseq-luna: train: fairseq's own command trains: fairseq-train ")
    assert refused(capsys, "info", "--paths") == "unrecognized arguments: --paths"
    assert refused(capsys, "translate", "none") == "none: there is no such checkpoint"


def test_an_error_has_its_traceback_if_it_is_asked_for(capsys, monkeypatch):
    monkeypatch.setenv("LOGLEVEL", "DEBUG")
    assert main(["info", "--paths"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_the_version_or_the_path_alone_is_printed(capsys):
    assert shown(capsys, "--version") == f"fairseq_luna {fairseq_luna.__version__}\n"
    assert shown(capsys, "info", "--path") == f"{PACKAGE}\n"


def test_the_report_has_the_path_the_versions_and_the_patches(capsys):
    lines = shown(capsys, "info").splitlines()
    assert logging.root.manager.disable == logging.NOTSET  # what fairseq logs later is shown
    assert lines[0] == f"--user-dir {shortest(PACKAGE)}"
    assert any(line.split() == ["torch", metadata.version("torch")] for line in lines)
    assert any(line.startswith("fairseq ") and "0.12" in line for line in lines)
    patches = [line for line in lines if line.startswith("patch ")]
    assert ["applied" in line for line in patches] == [result.applied for result in compat.apply_patches()]


def test_the_flags_of_a_model_are_printed_with_its_defaults(capsys):
    text = shown(capsys, "info", "--arch", "luna_tiny")
    assert re.search(r"--attention-dropout \S+\s+dropout probability for attention weights \(default:\s+0\.0\)", text)
    assert re.search(r"--projection-length \S+\s.*?\(default: 16\)", text, flags=re.S)
    assert re.search(r"--encoder-embed-dim \S+\s.*?\(default: 128\)", text, flags=re.S)
    assert "--encoder-embed-dim" in shown(capsys, "info", "--arch", "transformer")
    assert "did you mean luna_tiny" in refused(capsys, "info", "--arch", "luna_tine")
    assert "fairseq-luna info lists" in refused(capsys, "info", "--arch", "xyzzy")


@pytest.mark.parametrize("name", info.published_layers())
def test_info_says_how_an_attention_differs_from_the_published_one(capsys, name):
    text = shown(capsys, "info", "--attention", name.split()[0])
    layer = info.published_layers()[name]
    assert layer.layer in text
    assert all(cell in text for difference in layer.differences for cell in difference)


def test_info_suggests_the_nearest_attention(capsys):
    assert "did you mean retention?" in refused(capsys, "info", "--attention", "retentoin")
    assert "the names are " in refused(capsys, "info", "--attention", "xyzzy")


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_the_commands_of_the_report_have_no_path_that_a_move_makes_wrong(capsys, monkeypatch, tmp_path, inside):
    monkeypatch.chdir(PACKAGE.parent if inside else tmp_path)
    commands = shown(capsys, "info").partition("all flags of a model")[2]
    assert f"{program('fairseq-luna')} info --arch luna_tiny" in commands
    user_dir = PACKAGE.name if inside else f'"$({program("fairseq-luna")} info --path)"'
    assert f"--user-dir {user_dir} --arch luna_tiny" in commands


def test_a_command_inside_another_is_run_by_the_same_path(capsys, monkeypatch, tmp_path):
    """Where no environment is active, only full paths find these programs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "other bin" / "python"))
    (tmp_path / "other bin").mkdir()
    for name in ("fairseq-luna", "fairseq-train"):
        (tmp_path / "other bin" / name).touch()
    last = shown(capsys, "info").splitlines()[-1].strip()
    path = "'other bin/fairseq-{}'"
    assert last == f'{path.format("train")} DATA --user-dir "$({path.format("luna")} info --path)" --arch luna_tiny'


def test_registered_names_are_this_packages_own():
    registered = info.registered()
    assert "luna" in registered["architectures"] and "transformer" not in registered["architectures"]
    assert registered["optimizers"] == ["apollo"]
    assert "milestone" in registered["lr schedulers"]


def test_a_reader_that_ends_is_no_error():
    command = [sys.executable, "-m", "fairseq_luna", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        started.stdout.close()
        assert (started.wait(300), started.stderr.read()) == (141, "")


def test_ctrl_c_ends_in_one_line():
    code = (
        "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"  # a background job ignores it
        "from fairseq_luna import __main__, environment;"
        "environment.require_fairseq = lambda: os.kill(os.getpid(), signal.SIGINT);"
        "raise SystemExit(__main__.main(['info']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGINT, "")
    assert ended.stderr.strip() == "fairseq-luna info: stopped; no file is left incomplete"

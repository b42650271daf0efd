"""A flag that is read once is refused if it is given twice; others collect their values."""

import ast
import subprocess
import sys
from argparse import SUPPRESS
from pathlib import Path

import pytest

from fairseq_luna import commands
from fairseq_luna.__main__ import parser_of
from fairseq_luna.command_line import CommandError, Parser
from own_command import refused

ROOT = Path(__file__).parents[2]
FOLDERS = ("fairseq_luna", "scripts", "research", "examples")


def parser():
    made = Parser(None)
    made.add_argument("words", nargs="*")
    made.add_argument("-b", "--beam", type=int)
    made.add_argument("--files", nargs="+")
    made.add_argument("--quiet", action="store_true")
    made.add_argument("--loud", dest="quiet", action="store_false")
    made.add_argument("--other", action="append")
    made.add_argument("--more", nargs="+", action="extend")
    made.add_argument_group("group").add_argument("--grouped", default=SUPPRESS)
    return made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--beam 5 --beam 6", "argument -b/--beam: is given twice, with 5 and with 6; give it once"),
        ("--beam 5 word --beam=5", "argument -b/--beam: is given twice, with 5 and with 5; give it once"),
        ("-b 5 --beam 6", "argument -b/--beam: is given beside -b; give one of them"),
        ("--bea 5 --bea 6", "argument -b/--beam: is given twice, with 5 and with 6; give it once"),
        ("--files a b --files c", "argument --files: is given twice, with a b and with c; give it once"),
        ("--quiet --quiet", "argument --quiet: is given twice; give it once"),
        ("--quiet --loud", "argument --loud: is given beside --quiet; give one of them"),
        ("--grouped a --grouped b", "argument --grouped: is given twice, with a and with b; give it once"),
    ],
)
def test_a_repeated_flag_is_refused(given, said):
    with pytest.raises(CommandError) as error:
        parser().parse_args(given.split())
    assert str(error.value) == said


def test_what_collects_its_values_may_be_repeated():
    made = parser()
    given = ["a", "--other", "1", "--other", "2", "--more", "1", "2", "--more", "3", "--beam", "5"]
    for _ in range(2):  # one parser reads several command lines
        found = made.parse_args(given)
        assert (found.words, found.other, found.more, found.beam) == (["a"], ["1", "2"], ["1", "2", "3"], 5)


def test_a_flag_of_a_subcommand_is_refused_too():
    made = Parser(None)
    own = made.add_subparsers(dest="command").add_parser("op", description=None)
    own.add_argument("--threads")
    assert made.parse_args(["op", "--threads", "1"]).threads == "1"
    with pytest.raises(CommandError, match="--threads: is given twice, with 1 and with 2"):
        made.parse_args(["op", "--threads", "1", "--threads", "2"])


def flags_of(command):
    return [action for action in vars(parser_of(command, []))["_actions"] if action.option_strings]


FLAGS = [(command, action.option_strings[-1]) for command in commands.COMMANDS for action in flags_of(command)]


@pytest.mark.parametrize(("command", "option"), [each for each in FLAGS if each[1] != "--help"])
def test_no_flag_of_a_command_is_read_once_in_silence(command, option):
    """It is refused the second time, or collects."""
    parser = parser_of(command, [])
    for action in vars(parser)["_actions"]:
        action.required = False
    [action] = [action for action in vars(parser)["_actions"] if option in action.option_strings]
    count = {None: 1, "+": 1, "?": 1}.get(action.nargs, action.nargs)
    once = [option, *[str(next(iter(action.choices)) if action.choices else 7)] * count]
    try:
        found = vars(parser.parse_known_args([*once, *once])[0])[action.dest]
    except CommandError as error:
        assert "is given twice" in str(error)
        assert option in str(error)
    else:
        assert len(found) == 2


@pytest.mark.parametrize("given", [("--arch", "luna_base"), ("--decoder-self-attention", "linear")])
def test_a_repeated_flag_of_a_new_model_is_refused(given, tmp_path, capsys):
    old = tmp_path / "old.pt"
    old.touch()
    said = refused(capsys, "convert", old, "--arch", "mixed_base", "--output", "new.pt", *given, *given)
    assert said.startswith(f"argument {given[0]}: is given twice, with ")


def test_every_command_reads_its_flags_with_this_parser():
    """argparse's own reads the last of several values; fairseq's is read by ``compat``, not by a user."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    calls = {
        path.relative_to(ROOT).as_posix()
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "ArgumentParser"
    }
    assert len(files) > 200
    assert calls == {"fairseq_luna/compat/precision_flags.py"}


def test_the_deployed_command_refuses_a_repeated_flag():
    given = [sys.executable, "-m", "fairseq_luna.deployed", "none", "--threads", "1", "--threads", "2"]
    ended = subprocess.run(given, capture_output=True, text=True, timeout=100)
    said = "argument --threads: is given twice, with 1 and with 2; give it once"
    assert (ended.returncode, ended.stderr) == (2, f"fairseq_luna.deployed: {said}\n")

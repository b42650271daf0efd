"""``fairseq-luna``, which is ``python -m fairseq_luna``: see :mod:`fairseq_luna.commands`."""

import logging
import os
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

from . import __version__, commands, silenced_logs
from .command_line import CommandError, Parser, open_standard_streams, run_and_report

PROGRAM = "fairseq-luna"
DESCRIPTION = """\
Translation models with efficient attention, as a plugin of fairseq.

commands, in the order in which you need them:
{commands}

fairseq-luna COMMAND --help explains a command, with examples.
"""
TRAIN = "fairseq-train"
TRAIN_SUMMARY = 'Train a model: fairseq\'s own command, with --user-dir "$(fairseq-luna info --path)"'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that ``arguments`` name, of the process by default; returns the exit status."""
    open_standard_streams()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    name = argv[0] if argv and argv[0] in commands.COMMANDS else None
    return run_and_report(
        f"{PROGRAM} {name}" if name else PROGRAM, lambda: run(name, argv[1:]) if name else explain(argv)
    )


def run(name: str, argv: Sequence[str]) -> int | None:
    """Run the command ``name`` with the arguments ``argv``."""
    # LOGLEVEL is fairseq's own switch. fairseq logs on import too.
    with nullcontext() if "LOGLEVEL" in os.environ else silenced_logs.silence_all_loggers(logging.INFO):
        module = module_of(name)
        if hasattr(module, "check_argv"):
            module.check_argv(argv)
        status: int | None = module.run(parser_of(name, argv).parse_args(argv))
    return status


def parser_of(name: str, argv: Sequence[str]) -> Parser:
    """The parser of the command ``name`` for the arguments ``argv``."""
    module = module_of(name)
    parser = Parser(module.__doc__, prog=f"{PROGRAM} {name}", allow_abbrev=False)
    module.add_flags(parser)
    if hasattr(module, "add_chosen_flags"):
        module.add_chosen_flags(parser, argv)
    return parser


def explain(argv: Sequence[str]) -> None:
    """Show the help or the version; raises CommandError if ``argv`` asks for something else."""
    summaries = {name: summary(module_of(name)) for name in commands.COMMANDS}
    place = commands.COMMANDS.index("prepare") + 1
    rows = [*summaries.items()]
    rows.insert(place, (TRAIN, TRAIN_SUMMARY))
    width = max(len(name) for name, _ in rows)
    listed = "\n".join(f"    {name:{width}}  {text}" for name, text in rows)
    parser = Parser(DESCRIPTION.format(commands=listed), prog=PROGRAM, usage=f"{PROGRAM} COMMAND ...")
    parser.add_argument("--version", action="version", version=f"fairseq_luna {__version__}")
    parser.add_argument("command", nargs="?", metavar="COMMAND", help=SUPPRESS)
    args, _ = parser.parse_known_args(argv)
    if argv:
        name = args.command or argv[0]
        if name == "train":
            command = f'{TRAIN} DATA --user-dir "$({PROGRAM} info --path)"'
            raise CommandError(f"train: fairseq's own command trains: {command}")
        near = get_close_matches(name, commands.COMMANDS, n=1)
        advice = f"did you mean {near[0]}? " if near else ""
        raise CommandError(f"{name}: {advice}the commands are {', '.join(commands.COMMANDS)}")
    parser.print_help()


def module_of(name: str) -> ModuleType:
    return import_module(f"{commands.__name__}.{name}")


def summary(module: ModuleType) -> str:
    """The first sentence of the command's help."""
    return (module.__doc__ or "").split("\n\n")[0].replace("\n", " ").rstrip(".")


if __name__ == "__main__":
    sys.exit(main())

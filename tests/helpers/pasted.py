"""Printed commands, run as a shell runs what is pasted."""

import re
import runpy
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from commands import run
from fairseq_luna.__main__ import main
from stand_ins import run_in_shell


def run_module(words: Sequence[str]) -> None:
    """``python -m MODULE ...`` in this process."""
    option, module, *arguments = words
    assert option == "-m"
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


FAIRSEQS = ("train", "generate", "interactive", "preprocess", "validate", "score")
PROGRAMS = {
    "python": run_module,
    "fairseq-luna": lambda words: main([*words]),
    **{f"fairseq-{name}": partial(lambda name, words: run(name, *words), name) for name in FAIRSEQS},
}


# A program at the start of a command, with its folder's path if it has one, in quotes if there are spaces in it.
_PROGRAM = re.compile(r"(?:^|(?<= ))(?:'([^']*/)|(\S*/))?(fairseq-[a-z]+)'?(?= )")


def paste(line: str, *further: str) -> str:
    """Run ``line``, with ``further`` flags at its end, in the current folder; returns its standard output."""
    folders = [quoted or plain for quoted, plain, _ in _PROGRAM.findall(line)]
    assert folders and all(Path(folder).is_dir() for folder in folders if folder)
    return run_in_shell(" ".join([_PROGRAM.sub(r"\3", line), *further]), Path.cwd(), PROGRAMS)


def commands(shown: str) -> list[str]:
    """The commands to paste in what a command of this package printed."""
    return re.findall(r"^    (.*)$", shown, flags=re.M)

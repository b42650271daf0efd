"""Printed commands, run as a shell runs what is pasted."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def paste(line: str, *further: str, **environment: str) -> str:
    """Run ``line``, with ``further`` flags at its end, in the current folder; returns what it prints."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = " ".join([line, *further])
    ended = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    return ended.stdout


def commands(shown: str) -> list[str]:
    """The commands to paste in what a command of this package printed."""
    return re.findall(r"^    (.*)$", shown, flags=re.M)

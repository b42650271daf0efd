"""``fairseq-luna`` in this process."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fairseq_luna.__main__ import main


def shown(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The output of the command, which succeeds without a warning."""
    capsys.readouterr()
    try:
        status = main([*map(str, arguments)])
    except SystemExit as ended:  # argparse's, after help
        status = ended.code
    output = capsys.readouterr()
    assert not status and "warning" not in output.err, output.err
    return output.out


def with_defaults(given: Sequence[Any], defaults: Mapping[str, Any]) -> list[Any]:
    """The arguments ``given``, and the flags of ``defaults`` that are not among them: none may be given twice."""
    return [*given, *(word for pair in defaults.items() if pair[0] not in given for word in pair)]


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one line of the refusal, which may follow what it does, without the command's name."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 2
    output = capsys.readouterr()
    *progress, line = output.err.splitlines()
    assert all(said.endswith(" ...") for said in progress), output.err
    return line.removeprefix(f"fairseq-luna {arguments[0]}: ")

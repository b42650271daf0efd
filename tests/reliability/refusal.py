"""Exit status and last line of a command of fairseq that fails, and fingerprints of files."""

import hashlib
import sys

from commands import run


def refusal(capsys, command, *arguments):
    """Run fairseq's ``command``, which must fail, and return the one line it says."""
    capsys.readouterr()
    try:
        run(command, *arguments)
        status = 0
    except SystemExit as stopped:  # argparse
        status = stopped.code
    except Exception as error:
        status = 1
        sys.excepthook(type(error), error, error.__traceback__)
    printed = capsys.readouterr().err
    assert status, f"nothing was refused: {arguments}"
    assert "Traceback" not in printed, printed
    lines = [line for line in printed.splitlines() if ": error: " in line]
    assert len(lines) == 1 and printed.rstrip().endswith(lines[0]), printed
    return lines[0]


def fingerprint(folder):
    """A hash of each file in ``folder``."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

"""Bad input, a missing file, no network: said in one line, without a traceback."""

import errno
import os
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool

from shared.steps import CommandError

_FULL = "no space left on the disk; free some and give the same command again"


class CommandError(Exception):
    """The message names the file, flag or address, and the mend."""


def report_in_one_line(program: str, main: Callable[[], None]) -> int:
    """Run ``main``; the exit status. Nothing half made is ever reused, so that the mend is to start again."""
    try:
        main()
    except CommandError as problem:
        return _say(f"{program}: {problem}", 2)
    except CommandError as failure:
        return _say(f"{program}: {_FULL}" if os.strerror(errno.ENOSPC) in str(failure) else str(failure), 1)
    except BrokenProcessPool:
        return _say(f"{program}: a worker was killed, probably for want of memory: start again with fewer --workers", 1)
    except KeyboardInterrupt:
        return _say(f"\n{program}: stopped; the same command goes on where it stopped", 130)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return _say(f"{program}: {_FULL}", 1)
        return _say(f"{program}: {error}", 1)
    return 0


def _say(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status

"""Average checkpoints of one training into one that fairseq-generate loads.

    python scripts/average_checkpoints.py --last 10 checkpoints --output checkpoints/average_10.pt
    python scripts/average_checkpoints.py --last 5 checkpoints --by-updates --output average_5.pt
    python scripts/average_checkpoints.py a.pt b.pt c.pt --output average.pt

Files are read with torch's weights_only, so that no code in them is run. The result has no optimizer state.
"""

import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_luna.commands.command_line import CommandError, Parser, command
from shared.output import check_output, save

_BY_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
_BY_UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
_SHOWN = {_BY_EPOCH: "epoch checkpoints (checkpointN.pt)", _BY_UPDATE: "update checkpoints (checkpoint_E_U.pt)"}


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="checkpoints, in place of --last")
    parser.add_argument("--last", nargs=2, metavar=("N", "FOLDER"), help="the last N epochs' checkpoints of FOLDER")
    parser.add_argument("--by-updates", action="store_true", help="with --last: those of --save-interval-updates")
    parser.add_argument("--output", type=Path, required=True, help="the averaged checkpoint")
    parser.add_argument("--force", action="store_true", help="replace --output if it exists")
    args = parser.parse_args(arguments)
    paths = choose(args)
    check_output(args.output, paths, force=args.force)
    save(average(paths), args.output)
    print(f"{args.output}: the mean of {', '.join(path.name for path in paths)}")


def choose(args: Namespace) -> list[Path]:
    """Raises CommandError unless the flags name checkpoints, each once."""
    if bool(args.files) == bool(args.last):
        raise CommandError("give either --last N FOLDER or a list of checkpoints")
    if args.last:
        count, folder = args.last
        if not (count.isascii() and count.isdigit() and int(count)):
            raise CommandError(f"--last {count} {folder}: N must be a whole number above 0")
        return last(Path(folder), int(count), by_updates=args.by_updates)
    if args.by_updates:
        raise CommandError("--by-updates: only with --last N FOLDER")
    seen: set[Path] = set()
    for file in args.files:
        if file.resolve() in seen:
            raise CommandError(f"{file} is given twice, and would count twice; name it once")
        seen.add(file.resolve())
    return args.files


def last(folder: Path, count: int, *, by_updates: bool = False) -> list[Path]:
    """The last ``count`` checkpoints of ``folder``, the newest last.

    Args:
        folder: fairseq-train's --save-dir.
        count: at least 1.
        by_updates: those of --save-interval-updates instead of epochs.

    Raises:
        CommandError: no such folder, or fewer checkpoints than ``count``.
    """
    if not folder.is_dir():
        raise CommandError(f"--last: there is no folder {folder}")
    wanted, others = (_BY_UPDATE, _BY_EPOCH) if by_updates else (_BY_EPOCH, _BY_UPDATE)
    found = _numbered(folder, wanted)
    if count < 1 or len(found) < count:
        message = f"--last {count}: {folder} has {len(found)} {_SHOWN[wanted]}"
        if instead := len(_numbered(folder, others)):
            message += (
                f" and {instead} {_SHOWN[others]}: {'leave out' if by_updates else 'give'} --by-updates for those"
            )
        raise CommandError(message)
    return found[-count:]


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    matches = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches if match)]


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """See :func:`averaging.mean.average`."""
    # fairseq takes seconds to import; wrong flags are refused before that.
    from averaging import mean

    return mean.average(paths)


if __name__ == "__main__":
    sys.exit(main())

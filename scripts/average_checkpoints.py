"""Average checkpoints of one training into one that fairseq-generate loads.

    python scripts/average_checkpoints.py --last 10 checkpoints --output checkpoints/average_10.pt
    python scripts/average_checkpoints.py --last 5 checkpoints --by-updates --output average_5.pt
    python scripts/average_checkpoints.py a.pt b.pt c.pt --output average.pt

Files are read under torch's weights_only, so that nothing in them is run. The result has no optimizer state.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from averaging.choosing import last
from averaging.problem import CannotAverage

__all__ = ["CannotAverage", "average", "last", "main", "save"]


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        paths = choose(args)
        check_output(args.output, paths, force=args.force)
        save(average(paths), args.output)
    except (CannotAverage, OSError) as problem:
        print(f"average_checkpoints.py: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\naverage_checkpoints.py: stopped; nothing was written", file=sys.stderr)
        return 130
    print(f"{args.output}: the mean of {', '.join(path.name for path in paths)}")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("files", nargs="*", type=Path, metavar="FILE", help="checkpoints, in place of --last")
    made.add_argument("--last", nargs=2, metavar=("N", "FOLDER"), help="the last N epochs' checkpoints of FOLDER")
    made.add_argument("--by-updates", action="store_true", help="with --last: those of --save-interval-updates")
    made.add_argument("--output", type=Path, required=True, help="where to write the result")
    made.add_argument("--force", action="store_true", help="replace --output if it exists")
    return made


def choose(args: argparse.Namespace) -> list[Path]:
    """Raises CannotAverage unless the flags name checkpoints, each once."""
    if bool(args.files) == bool(args.last):
        raise CannotAverage("give either --last N FOLDER or a list of checkpoints")
    if args.last:
        count, folder = args.last
        if not (count.isascii() and count.isdigit() and int(count)):
            raise CannotAverage(f"--last {count} {folder}: N must be a whole number above 0")
        return last(Path(folder), int(count), by_updates=args.by_updates)
    if args.by_updates:
        raise CannotAverage("--by-updates: only with --last N FOLDER")
    seen: set[Path] = set()
    for file in args.files:
        if file.resolve() in seen:
            raise CannotAverage(f"{file} is given twice, and would count twice; leave it out once")
        seen.add(file.resolve())
    return args.files


def check_output(output: Path, inputs: Sequence[Path], *, force: bool) -> None:
    """Raises CannotAverage where writing ``output`` would lose something, or cannot work."""
    if output.resolve() in {path.resolve() for path in inputs}:
        raise CannotAverage(f"--output {output}: that is one of the checkpoints to average; give another name")
    if not output.absolute().parent.is_dir():
        raise CannotAverage(f"--output {output}: there is no folder {output.parent}")
    if output.is_dir() or (output.exists() and not force):
        raise CannotAverage(
            f"--output {output}: it exists; give another name{'' if output.is_dir() else ', or --force'}"
        )


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """See :func:`averaging.mean.average`."""
    # fairseq takes seconds to import, and a wrong flag should not have to wait for it.
    from averaging import mean

    return mean.average(paths)


def save(state: dict[str, Any], output: Path) -> None:
    """Write under another name first, so that ``output`` is never half a checkpoint.

    Raises:
        CannotAverage: it could not be written; nothing is left behind.
    """
    import torch

    unfinished = output.with_name(output.name + ".unfinished")
    try:
        torch.save(state, unfinished)
        unfinished.replace(output)
    except (OSError, RuntimeError) as error:  # torch raises the second for a full disk
        raise CannotAverage(f"--output {output}: {next(iter(str(error).splitlines()), error)}") from error
    finally:
        unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    for _name in ("fairseq", "fairseq_luna"):  # what they say of themselves on import is not about checkpoints
        logging.getLogger(_name).setLevel(logging.WARNING)
    sys.exit(main())

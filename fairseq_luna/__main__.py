"""``python -m fairseq_luna``: the path for --user-dir, versions, patches and registered names; or translations."""

import argparse
import logging
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from fairseq_luna import __version__, environment, translate


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_luna", description="Report on this installation, or translate text."
    )
    parser.add_argument("--path", action="store_true", help="print only the path to pass as --user-dir")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    text = translate.DESCRIPTION
    translate.add_flags(commands.add_parser("translate", help=text, description=text))
    args = parser.parse_args()
    if args.command == "translate":
        translate.end_at_signals()
        logging.disable(logging.INFO)  # fairseq's, on import too
    # For the path alone fairseq is not imported: that takes seconds, and fairseq logs meanwhile.
    problem = environment.fairseq_missing() if args.path else environment.fairseq_problem()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    if args.command == "translate":
        translate.run(args)
        return 0
    path = str(Path(__file__).parent)
    print(path if args.path else "\n".join(report(path)))
    return 0


def report(path: str) -> Iterable[str]:
    """The lines of the full report. Activates the plugin, so fairseq must be importable."""
    from fairseq_luna import compat, models  # noqa: F401 (activates the plugin)

    yield f"--user-dir {path}"
    yield f"{'fairseq_luna':<14}{__version__}"
    yield f"{'python':<14}{platform.python_version()}"
    yield f"{'fairseq':<14}{environment.fairseq_distribution()}"
    for name in ("torch", "sacrebleu", "sentencepiece"):
        yield f"{name:<14}{environment.version_of(name) or 'not installed'}"
    for result in compat.apply_patches():
        yield f"patch {result.name}: {'applied' if result.applied else 'not needed'}: {result.summary}"
    for kind, names in registered().items():
        yield f"{kind}: {' '.join(names) or 'none'}"


def registered() -> dict[str, list[str]]:
    """The names that this package has registered with fairseq, by kind."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY

    registries: dict[str, Mapping[str, type]] = {
        "architectures": ARCH_MODEL_REGISTRY,
        "optimizers": OPTIMIZER_REGISTRY,
        "lr schedulers": LR_SCHEDULER_REGISTRY,
    }
    return {
        kind: sorted(name for name, cls in registry.items() if cls.__module__.startswith("fairseq_luna."))
        for kind, registry in registries.items()
    }


if __name__ == "__main__":
    sys.exit(main())

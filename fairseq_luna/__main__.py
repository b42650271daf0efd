"""``python -m fairseq_luna``: the path for --user-dir, the versions here, the patches, what is registered."""

import argparse
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from fairseq_luna import environment


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fairseq_luna", description="Where and what this plugin is.")
    parser.add_argument("--path", action="store_true", help="print only the path to pass as --user-dir")
    args = parser.parse_args()
    if environment.fairseq_problem() is not None:
        return 1  # importing the package has said why
    path = str(Path(__file__).parent)
    print(path if args.path else "\n".join(report(path)))
    return 0


def report(path: str) -> Iterable[str]:
    """The lines of the full report; fairseq must work."""
    from fairseq_luna import compat

    yield f"--user-dir {path}"
    yield f"{'python':<14}{platform.python_version()}"
    yield f"{'fairseq':<14}{environment.fairseq_distribution()}"
    for name in ("torch", "sacrebleu", "sentencepiece", "fairseq-luna"):
        yield f"{name:<14}{environment.version_of(name) or 'not installed'}"
    for result in compat.apply_patches():
        verdict = f"applied: {result.summary}" if result.applied else "not needed"
        yield f"patch {result.name}: {verdict}"
    for kind, names in registered().items():
        yield f"{kind}: {' '.join(names) or 'none'}"


def registered() -> dict[str, list[str]]:
    """The names that fairseq knows because of this package, by kind."""
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

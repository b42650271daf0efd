"""Show what is installed, and whether fairseq works here.

    fairseq-luna info
    fairseq-train --user-dir "$(fairseq-luna info --path)" --arch luna_tiny --help

The report has versions, patches of fairseq, and the names of models and optimizers for fairseq-train.
"""

import platform
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping

from .. import __version__, environment
from ..usage_error import UsageError
from .steps import USER_DIR, shell, show_next


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--path", action="store_true", help="print only the folder to pass as --user-dir")


def run(args: Namespace) -> None:
    if args.path:  # without fairseq's import, which takes seconds
        if (missing := environment.fairseq_missing()) is not None:
            raise UsageError(missing)
        print(USER_DIR)
        return
    environment.require_fairseq()
    print("\n".join(report()))
    show_next("all flags of a model", shell("fairseq-train", "--user-dir", USER_DIR, "--arch", "luna_tiny", "--help"))


def report() -> Iterable[str]:
    """The lines of the full report. Activates the plugin, so fairseq must be importable."""
    from .. import compat, models  # noqa: F401 (activates the plugin)

    yield f"--user-dir {USER_DIR}"
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

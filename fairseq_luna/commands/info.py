"""Show what is installed, and whether fairseq works here.

    fairseq-luna info
    fairseq-luna info --arch luna_tiny
    fairseq-luna info --attention retention
    fairseq-train data/bin --user-dir "$(fairseq-luna info --path)" --arch luna_tiny

The report lists versions, patches of fairseq, and the names of models and optimizers for fairseq-train. --arch prints
the flags of a model, which fairseq-train accepts although its own --help does not show them. --attention prints the
paper that an attention, or the optimizer apollo, follows, and what differs from it here.
"""

import platform
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from .. import __version__, environment
from ..command_line import Parser
from ..published import Published
from ..usage_error import UsageError
from .shell_commands import USER_DIR, program, shell, shortest, show_next, shown_path


def add_flags(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--path", action="store_true", help="print only the folder to pass as --user-dir")
    which.add_argument("--arch", metavar="NAME", help="print only the flags of this model, with their defaults")
    which.add_argument(
        "--attention", metavar="NAME", help="print only the paper of this attention, and what differs from it here"
    )


def run(args: Namespace) -> None:
    if args.path:  # without fairseq's import, which takes seconds
        if (missing := environment.fairseq_missing()) is not None:
            raise UsageError(missing)
        print(USER_DIR)
        return
    if args.attention is not None:
        print("\n".join(differences_of(args.attention)))
        return
    environment.require_fairseq()
    if args.arch is not None:
        print(model_flags_help(args.arch), end="")
        return
    print("\n".join(report()))
    show_next(
        "all flags of a model, which fairseq-train --help leaves out",
        shell("fairseq-luna", "info", "--arch", "luna_tiny"),
    )
    # The path of another folder would be wrong after a move.
    inner = f'"$({program("fairseq-luna")} info --path)"'
    user_dir = shown_path(USER_DIR) if USER_DIR.is_relative_to(Path.cwd()) else inner
    show_next("in fairseq's commands", f"{program('fairseq-train')} DATA --user-dir {user_dir} --arch luna_tiny")


def published_layers() -> dict[str, Published]:
    """The published layer of each attention and of Apollo: first the names for ``--arch mixed_base``, then others."""
    from ..modules.declaration import declared_attentions
    from ..optim import apollo

    declared = declared_attentions().values()
    by_name = {attention.title: attention.published for attention in declared if attention.places}
    return by_name | {attention.title: attention.published for attention in declared} | apollo.PUBLISHED


def differences_of(name: str) -> Iterator[str]:
    """Yield the lines about the attention ``name``.

    Raises:
        UsageError: there is no such attention.
    """
    layers = {title.split()[0].lower(): layer for title, layer in published_layers().items()}
    if name.lower() not in layers:
        near = get_close_matches(name.lower(), layers)
        advice = f"did you mean {' or '.join(near)}?" if near else f"the names are {', '.join(layers)}"
        raise UsageError(f"--attention {name}: there is no such attention; {advice}")
    layer = layers[name.lower()]
    yield f"{name.lower()} follows: {layer.layer}"
    yield f"What differs from it here:{'' if layer.differences else ' nothing is known'}"
    for difference in layer.differences:
        yield f"  {difference.place}"
        yield f"    here:      {difference.in_this_package}"
        yield f"    published: {difference.in_the_published_layer}"
        yield f"    why:       {difference.reason}"
    yield 'The pages "Differences from the published layers" and "Reproduce" of the documentation have all attentions'


def model_flags_help(arch: str) -> str:
    """The help of the flags of the model ``arch``, with the defaults of this architecture.

    Raises:
        UsageError: there is no such architecture.
    """
    from fairseq.models import (
        ARCH_CONFIG_REGISTRY,
        ARCH_MODEL_NAME_REGISTRY,
        ARCH_MODEL_REGISTRY,
        MODEL_DATACLASS_REGISTRY,
    )

    from .. import models  # noqa: F401 (registers the models)

    if arch not in ARCH_MODEL_REGISTRY:
        near = get_close_matches(arch, ARCH_MODEL_REGISTRY)
        advice = f"did you mean {' or '.join(near)}?" if near else "fairseq-luna info lists this package's"
        raise UsageError(f"--arch {arch}: there is no such model; {advice}")
    parser = Parser(None, prog="fairseq-train", usage=SUPPRESS, add_help=False)
    group = parser.add_argument_group(f"--arch {arch} also takes")
    ARCH_MODEL_REGISTRY[arch].add_args(group)
    preset = Namespace()
    ARCH_CONFIG_REGISTRY.get(arch, lambda _: None)(preset)
    dataclass = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(arch))
    defaults = {**(vars(dataclass()) if dataclass else {}), **vars(preset)}  # fairseq keeps them out of the parser
    for action in parser._actions:
        default = defaults.get(action.dest)
        if (
            action.help != SUPPRESS
            and default is not False
            and default not in (None, "", [])
            and "default" not in (action.help or "")
        ):
            shown = getattr(default, "value", default)
            action.help = f"{action.help or ''} (default: {shown})".replace("%", "%%").lstrip()
    return parser.format_help()


def report() -> Iterable[str]:
    """Yield the lines of the full report. Activates the plugin, so fairseq must be importable."""
    from .. import compat, models  # noqa: F401 (activates the plugin)

    yield f"--user-dir {shortest(USER_DIR)}"
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

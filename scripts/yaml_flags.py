"""Print a YAML file of fairseq-hydra-train as arguments of fairseq-train, one a line.

    python scripts/yaml_flags.py examples/wmt14_en_de/config/luna_big.yaml task.data=data/wmt14_en_de/bin

SECTION.NAME=VALUE overrides a setting of the file or of the files that its defaults name. A section's _name becomes
--arch, --optimizer and so on. A setting that is false gives no flag: the file must not turn off what is on by default.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import MISSING, OmegaConf

from fairseq_luna.commands.command_line import CommandError, Parser, command

# fairseq-train derives these from --decoder-embed-dim; the first has no flag.
_DERIVED = ("decoder_input_dim", "decoder_output_dim")


def composed(config: Path) -> dict[str, dict[str, Any]]:
    """The settings of ``config`` and of its defaults, merged in their order as hydra does."""
    own = OmegaConf.load(config)
    parts = []
    for entry in own.pop("defaults", ["_self_"]):
        if entry == "_self_":
            parts.append(own)
        else:
            parts += [OmegaConf.load(config.parent / group / f"{name}.yaml") for group, name in entry.items()]
    return OmegaConf.to_container(OmegaConf.merge(*parts))


def override(settings: dict[str, dict[str, Any]], assignments: Sequence[str]) -> None:
    """Apply ``SECTION.NAME=VALUE``; a value stays the text that it is.

    Raises:
        CommandError: an assignment has another form.
    """
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        section, _, key = name.partition(".")
        if not value or not key:
            raise CommandError(f"{assignment}: must be SECTION.NAME=VALUE, such as task.data=data/bin")
        settings.setdefault(section, {})[key] = value


def arguments_of(settings: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The data folder, then the flags.

    Raises:
        CommandError: a setting that the file leaves open is not set.
    """
    yield _text(settings["task"].pop("data"), "task.data")
    for section, values in settings.items():
        if section == "hydra":
            continue
        for name, value in values.items():
            named = {"model": "arch"}.get(section, section) if name == "_name" else name
            flag = f"--{named.replace('_', '-')}"
            if value is True:
                yield flag
            elif value is not False and name not in _DERIVED:
                yield f"{flag}={_text(value, f'{section}.{name}')}"


def _text(value: Any, name: str) -> str:
    if value == MISSING:
        raise CommandError(f"{name} is not set: add {name}=VALUE")
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("config", type=Path, metavar="YAML")
    parser.add_argument("overrides", nargs="*", metavar="SECTION.NAME=VALUE")
    args = parser.parse_args(arguments)
    settings = composed(args.config)
    override(settings, args.overrides)
    print("\n".join(arguments_of(settings)))


if __name__ == "__main__":
    sys.exit(main())

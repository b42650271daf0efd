"""Make a model with another attention that starts from a trained transformer, to train it further.

    fairseq-luna convert old.pt --arch mixed_base --decoder-self-attention linear --output start.pt
    fairseq-luna convert luna.pt --arch luna_base --untie-luna-kv --output start.pt
    fairseq-luna convert --arch mixed_base --help

OLD.pt is a checkpoint of fairseq's transformer, or of a model of this package that is to get other options: other
attentions, untied projections, another number of slots, a convolution. Sizes are taken from OLD.pt; give only what is
new. Together with --arch, --help lists all flags of that model. Embeddings, norms, feed-forward networks and every
projection that has a counterpart are copied. A convolution starts at zero, which changes nothing. The printed table
says where each parameter comes from. The command that trains START.pt follows, with the data, the task, the
loss and the batches of the old training. A model with other flags refuses to load START.pt.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import environment
from ..command_line import Parser
from ..files import check_output, save_checkpoint
from ..model_files import check_file, data_folder
from ..model_settings import settings_as_dict
from ..usage_error import UsageError
from .shell_commands import shell, show_next
from .training_commands import train_converted

OWN = {"checkpoint", "arch", "output", "force", "seed"}


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="OLD.pt", help="checkpoint of the trained model")
    add("--arch", required=True, help="architecture of the new model, such as mixed_base, luna_base or block_base")
    add("--output", type=Path, required=True, metavar="START.pt", help="checkpoint to write")
    add("--force", action="store_true", help="replace --output if it exists")
    add("--seed", type=int, default=1, help="random seed of new parameters (default: 1)")


def check_argv(argv: Sequence[str]) -> None:
    """Raises UsageError if a path in ``argv`` is wrong, before torch is imported for the flags of the model."""
    chosen = Parser(None, allow_abbrev=False, add_help=False)
    chosen.add_argument("--output", type=Path)
    chosen.add_argument("--force", action="store_true")
    chosen.add_argument("-h", "--help", action="store_true")
    known_flags = chosen.parse_known_args(argv)[0]
    if argv and not known_flags.help:
        # Later words may be values of flags that are not known yet.
        first = None if argv[0].startswith("-") else Path(argv[0])
        check_paths(first, known_flags.output, force=known_flags.force)


def add_chosen_flags(parser: ArgumentParser, argv: Sequence[str]) -> None:
    """Add the flags of the model that --arch names in the arguments ``argv``."""
    chosen = Parser(None, allow_abbrev=False, add_help=False)
    chosen.add_argument("--arch")
    arch = chosen.parse_known_args(argv)[0].arch
    if arch is not None:
        environment.require_fairseq()
        from .converting.converted_settings import add_model_flags

        add_model_flags(parser, arch)


def check_paths(checkpoint: Path | None, output: Path | None, *, force: bool) -> None:
    """Raises UsageError if a path cannot be used; None: it is not known."""
    if checkpoint is not None:
        check_file(checkpoint, "checkpoint")
    if output is not None:
        check_output(output, filter(None, [checkpoint]), force=force)


def training_data(checkpoint: Path, cfg: Mapping[str, Any]) -> tuple[object, str | None]:
    """Data of the training that made ``checkpoint``, and a note if its path is not valid from the current folder.

    Args:
        cfg: config of the checkpoint.
    """
    recorded = str(settings_as_dict(cfg.get("task")).get("data") or "")
    if not recorded:
        return "data/bin", f"{checkpoint} does not say where its data was: replace data/bin by the folder"
    parts = recorded.split(os.pathsep)
    if all(Path(part).is_dir() for part in parts):
        return Path(recorded) if len(parts) == 1 else recorded, None
    candidate = None
    if len(parts) == 1:
        with suppress(UsageError):  # two folders are possible, and have different dictionaries
            candidate = data_folder(
                checkpoint, recorded, str(settings_as_dict(cfg.get("checkpoint")).get("save_dir") or "")
            )
    if candidate is not None and any(candidate.glob("train*")):  # dictionaries alone may be beside the checkpoint
        return candidate, None
    return recorded, f"{recorded} is the data folder that {checkpoint} records, and is not here: replace it"


def run(args: Namespace) -> None:
    check_paths(args.checkpoint, args.output, force=args.force)
    from .converting.converted_checkpoint import convert_checkpoint

    model_flags = {name: value for name, value in vars(args).items() if name not in OWN}
    converted = convert_checkpoint(args.checkpoint, args.arch, model_flags, seed=args.seed)
    cfg = converted.state["cfg"]
    data, note = training_data(args.checkpoint, cfg)
    training = shell(*train_converted(args.output, data, cfg, converted.flags))
    save_checkpoint(converted.state, args.output)
    print("\n".join(converted.table))
    print(f"{args.output}: {args.arch}")
    if note:
        print(f"Note: {note}")
    show_next("train it", training)

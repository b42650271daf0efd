"""Make a model with another attention that starts from a trained transformer, to train it further.

    fairseq-luna convert old.pt --arch mixed_base --decoder-self-attention linear --output start.pt
    fairseq-luna convert luna.pt --arch luna_base --untie-luna-kv --output start.pt
    fairseq-luna convert --arch mixed_base --help

The checkpoint is of fairseq's transformer, or of a model of this package that gets other options: other attentions,
untied projections, another number of slots, a convolution. Sizes are the checkpoint's; give only what is new. With
--arch the help has all flags of that model. Embeddings, norms, feed-forward networks and each projection that has a
counterpart are taken over; a convolution starts at zero, which changes nothing. The table says where each parameter
comes from. The last line is the command that trains the result, with the data, the task, the loss and the batches of
the old training; a model with other flags refuses the result.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from .. import environment
from ..model_files import check_file
from .command_line import Parser
from .output import check_output, save
from .steps import shell, show_next
from .training import finetune

OWN = {"checkpoint", "arch", "output", "force", "seed"}


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="OLD.pt", help="the trained model")
    add("--arch", required=True, help="the new model, such as mixed_base, luna_base or block_base")
    add("--output", type=Path, required=True, metavar="START.pt", help="the new model")
    add("--force", action="store_true", help="replace --output if it exists")
    add("--seed", type=int, default=1, help="of the parameters that start at random (default: 1)")


def check_given(given: Sequence[str]) -> None:
    """Raises UsageError if a path in ``given`` is wrong, before torch is imported for the flags of the model."""
    chosen = Parser(None, allow_abbrev=False, add_help=False)
    chosen.add_argument("--output", type=Path)
    chosen.add_argument("--force", action="store_true")
    chosen.add_argument("-h", "--help", action="store_true")
    found = chosen.parse_known_args(given)[0]
    if given and not found.help:
        # Later words may be values of flags that are not known yet.
        first = None if given[0].startswith("-") else Path(given[0])
        check_paths(first, found.output, force=found.force)


def add_chosen_flags(parser: ArgumentParser, given: Sequence[str]) -> None:
    """Add the flags of the model that --arch names in the arguments ``given``."""
    chosen = Parser(None, allow_abbrev=False, add_help=False)
    chosen.add_argument("--arch")
    arch = chosen.parse_known_args(given)[0].arch
    if arch is not None:
        environment.require_fairseq()
        from .converting.settings import add_model_flags

        add_model_flags(parser, arch)


def check_paths(checkpoint: Path | None, output: Path | None, *, force: bool) -> None:
    """Raises UsageError if a path cannot be used; None: it is not known."""
    if checkpoint is not None:
        check_file(checkpoint, "checkpoint")
    if output is not None:
        check_output(output, filter(None, [checkpoint]), force=force)


def run(args: Namespace) -> None:
    check_paths(args.checkpoint, args.output, force=args.force)
    from .converting.checkpoint import converted

    given = {name: value for name, value in vars(args).items() if name not in OWN}
    made = converted(args.checkpoint, args.arch, given, seed=args.seed)
    training = shell(*finetune(args.output, made.state["cfg"], made.flags))
    save(made.state, args.output)
    print("\n".join(made.table))
    print(f"{args.output}: {args.arch}")
    show_next("train it", training)

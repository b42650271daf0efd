"""Make a model of this package that starts with the parameters of a trained transformer, for fairseq-train.

    python scripts/convert_checkpoint.py OLD.pt --arch mixed_base --decoder-self-attention linear --output START.pt
    python scripts/convert_checkpoint.py LUNA.pt --arch luna_base --untie-luna-kv --output START.pt

The checkpoint is of fairseq's transformer, or of a model of this package that gets other options: other attentions,
untied projections, another number of slots, a convolution. Sizes are the checkpoint's; give only what is new (--arch
with --help lists all flags). Embeddings, norms, feed-forward networks and each projection that has a counterpart are
taken over; a convolution starts at zero, which changes nothing. The table says where each parameter comes from. The
last line is the command that trains the result; a model with other flags refuses it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_luna.commands.command_line import Parser, command
from fairseq_luna.commands.output import check_output, save
from fairseq_luna.commands.steps import USER_DIR, shown_path


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__, allow_abbrev=False)
    parser.add_argument("checkpoint", type=Path, metavar="OLD.pt", help="the trained model")
    parser.add_argument("--arch", required=True, help="the new model, such as mixed_base, luna_base or block_base")
    parser.add_argument("--output", type=Path, required=True, metavar="START.pt", help="the new model")
    parser.add_argument("--force", action="store_true", help="replace --output if it exists")
    parser.add_argument("--seed", type=int, default=1, help="of the parameters that start at random (default: 1)")
    own = {"checkpoint", "arch", "output", "force", "seed"}
    arch = _arch(arguments)
    if arch is not None:
        from converting.settings import add_model_flags  # fairseq takes seconds to import

        add_model_flags(parser, arch)
    args = parser.parse_args(arguments)
    check_output(args.output, [args.checkpoint], force=args.force)
    from converting.checkpoint import converted

    given = {name: value for name, value in vars(args).items() if name not in own}
    made = converted(args.checkpoint, args.arch, given, seed=args.seed)
    save(made.state, args.output)
    print("\n".join(made.table))
    plugin, start = shown_path(USER_DIR), shown_path(args.output)
    print("fairseq-train DATA", f"--user-dir={plugin}", f"--finetune-from-model={start}", *made.flags)


def _arch(arguments: Sequence[str] | None) -> str | None:
    """The value of --arch, which decides about the other flags."""
    parser = Parser(None, allow_abbrev=False, add_help=False)
    parser.add_argument("--arch")
    return parser.parse_known_args(arguments)[0].arch


if __name__ == "__main__":
    sys.exit(main())

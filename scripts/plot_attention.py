"""Draw the attention weights of a trained model for one sentence pair.

    python scripts/plot_attention.py checkpoint_best.pt --data data-bin --sentencepiece-model joint.model \\
        --source "A man in an orange hat." --target "Ein Mann mit einem orangefarbenen Hut." \\
        --attention encoder cross --layers 3 --heads 0 1 --output maps.png

Luna's attention has two maps, pack (slots x words) and unpack (words x slots); through (words x words) is their
product. research/2026-11-24-attention-maps.md explains how to read them.
"""

import logging
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fairseq_luna.commands.command_line import Parser, command
from plots.attention_map import LUNA_MAPS, SIDES
from shared import picture


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="saved by fairseq-train")
    parser.add_argument(
        "--source", required=True, metavar="SENTENCE", help="pieces, or text with --sentencepiece-model"
    )
    parser.add_argument("--target", metavar="SENTENCE", help="its translation; default: the model's, by beam search")
    parser.add_argument("--sentencepiece-model", type=Path, metavar="MODEL", help="splits both sentences into pieces")
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="data-bin with the dictionaries; default: the training's"
    )
    parser.add_argument("--attention", nargs="+", choices=SIDES, default=[], help="default: all that can be drawn")
    parser.add_argument("--layers", nargs="+", type=int, default=[], metavar="N", help="from 0; default: the last")
    parser.add_argument("--heads", nargs="+", type=int, default=[], metavar="N", help="from 0; default: all")
    parser.add_argument(
        "--maps", nargs="+", choices=LUNA_MAPS, default=["pack", "unpack"], help="of Luna; default: pack unpack"
    )
    picture.add_arguments(parser)
    args = parser.parse_args(arguments)
    picture.check_output(args.output, force=args.force)
    print(f"{args.output}: {plot(args)}")


def plot(args: Namespace) -> str:
    """Draw the picture; returns the names of its maps.

    Raises:
        CommandError: an input cannot be read or drawn.
    """
    # fairseq takes seconds to import; wrong flags are refused before that.
    from plots import attention_picture, reading
    from plots.attention_maps import attention_maps

    model, task = reading.load(args.checkpoint, args.data)
    pair = reading.sentence_pair(model, task, args.source, args.target, args.sentencepiece_model)
    maps = [
        found
        for found in attention_maps(model, pair, args.attention, args.layers)
        if found.kind not in LUNA_MAPS or found.kind in args.maps
    ]
    picture.save(attention_picture.draw(maps, args.heads), args.output)
    return ", ".join(f"{found.side} layer {found.layer} {found.kind}" for found in maps)


if __name__ == "__main__":
    for _name in ("fairseq", "fairseq_luna"):
        logging.getLogger(_name).setLevel(logging.WARNING)
    sys.exit(main())

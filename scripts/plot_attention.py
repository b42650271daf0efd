"""Draw what the attention of a trained model does with one sentence pair.

    python scripts/plot_attention.py checkpoint_best.pt --data data-bin --sentencepiece-model joint.model \\
        --source "A man in an orange hat." --target "Ein Mann mit einem orangefarbenen Hut." \\
        --attention encoder cross --layers 3 --heads 0 1 --output maps.png

Luna's attention is two maps, pack (slots x words) and unpack (words x slots); through (words x words) is what comes of
both. docs/looking_at_it.md says how to read them.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from plots import picture
from plots.choices import LUNA_MAPS, SIDES
from plots.problem import CannotPlot


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        picture.check_output(args.output, force=args.force)
        panels = plot(args)
    except (CannotPlot, OSError) as problem:
        print(f"plot_attention.py: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nplot_attention.py: stopped; nothing was written", file=sys.stderr)
        return 130
    print(f"{args.output}: {panels}")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="what fairseq-train saved")
    made.add_argument("--source", required=True, metavar="SENTENCE", help="pieces, or text with --sentencepiece-model")
    made.add_argument("--target", metavar="SENTENCE", help="its translation; default: the model's own, by beam search")
    made.add_argument("--sentencepiece-model", type=Path, metavar="MODEL", help="cuts both sentences into pieces")
    made.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="what fairseq-preprocess wrote, for its dictionaries; default: the training's",
    )
    made.add_argument("--attention", nargs="+", choices=SIDES, default=[], help="default: all that can be drawn")
    made.add_argument("--layers", nargs="+", type=int, default=[], metavar="N", help="from 0; default: the last")
    made.add_argument("--heads", nargs="+", type=int, default=[], metavar="N", help="from 0; default: all")
    made.add_argument(
        "--maps", nargs="+", choices=LUNA_MAPS, default=["pack", "unpack"], help="of Luna; default: pack unpack"
    )
    picture.add_arguments(made)
    return made


def plot(args: argparse.Namespace) -> str:
    """Draw what the flags say; what was drawn, in words.

    Raises:
        CannotPlot: something was given that cannot be read or drawn.
    """
    # fairseq takes seconds to import, and a wrong flag should not have to wait for it.
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
    for _name in ("fairseq", "fairseq_luna"):  # what they say of themselves on import is not about pictures
        logging.getLogger(_name).setLevel(logging.WARNING)
    sys.exit(main())

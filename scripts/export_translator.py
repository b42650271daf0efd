"""Export a trained model for fairseq_luna.deployed, which translates without torch and fairseq.

    python scripts/export_translator.py checkpoints/checkpoint_best.pt --output exported
    python -m fairseq_luna.deployed exported < text.en > text.de

The folder has the encoder and the decoder's step as ONNX, for any batch and beam and, where the attentions allow it,
any source length, with dictionaries and SentencePiece model. The graphs' numbers are compared with the model's.
Needs onnx, onnxscript and onnxruntime.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fairseq_luna.commands.command_line import CommandError, Parser, command
from fairseq_luna.commands.steps import once, remove, shown_path

CLOSE = 1e-4  # of log-probabilities in fp32
ANOTHER_FORM = "an attention may have another form from some length on; use fairseq-luna translate"


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="of a model of this package, or its folder")
    add("--output", type=Path, required=True, metavar="FOLDER", help="the new folder")
    add("--data", type=Path, metavar="FOLDER", help="with the dictionaries (default: as fairseq_luna.load)")
    add("--pieces", type=Path, metavar="FILE", help="SentencePiece model (default: as fairseq_luna.load)")
    add("--source-lang", metavar="LANG", help="if the training was not told its languages")
    add("--target-lang", metavar="LANG")
    add("--int8", action="store_true", help="weights of matrix products as bytes: smaller, faster, less exact")
    run(parser.parse_args(arguments))


def run(args: Namespace) -> None:
    if args.output.exists():
        raise CommandError(f"--output {args.output}: it exists; give another name")
    try:
        from deploying.comparison import difference
        from deploying.folder import write_folder
    except ImportError as error:
        raise CommandError(f"{error}; pip install onnx onnxscript onnxruntime") from error
    from fairseq_luna import load
    from fairseq_luna.usage_error import UsageError

    try:
        languages = {name: value for name in ("source_lang", "target_lang") if (value := getattr(args, name))}
        translator = load(args.checkpoint, data=args.data, pieces=args.pieces, **languages)
    except UsageError as error:
        raise CommandError(str(error)) from error

    def make(folder: Path) -> None:
        # Bytes would hide that a graph is wrong, so the exact ones are compared first.
        for int8 in (False, True) if args.int8 else (False,):
            remove(folder)
            folder.mkdir()
            write_folder(translator, folder, int8=int8)
            try:
                worst = difference(translator, folder)
            except RuntimeError as error:  # onnxruntime's; it has no class for that
                raise CommandError(f"{args.checkpoint}: a graph cannot be run; {ANOTHER_FORM}") from error
            kind = "int8" if int8 else "fp32"
            print(f"{kind}: log-probabilities of the graphs and of the model differ by {worst:.1e} at most", flush=True)
            if not (worst <= CLOSE or int8):
                raise CommandError(f"{args.checkpoint}: that is too much; {ANOTHER_FORM}")

    once("export", args.output, make)
    size = sum(file.stat().st_size for file in args.output.iterdir())
    translate = f"python -m fairseq_luna.deployed {shown_path(args.output)}"
    print(f"{args.output}: {size / 1e6:.1f} MB; translate with {translate}")


if __name__ == "__main__":
    sys.exit(main())

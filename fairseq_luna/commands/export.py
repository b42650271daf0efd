"""Export a trained model to a folder that translates on a CPU, faster and without torch and fairseq.

    pip install onnx onnxscript onnxruntime
    fairseq-luna export checkpoints --output exported
    python -m fairseq_luna.deployed exported < text.en > text.de

The folder contains ONNX graphs of the encoder and of a decoder step, the dictionaries and the SentencePiece model. The
graphs take any batch size and beam and, if the attentions allow it, any source length. The command compares the output
of the graphs with the model, which takes minutes. Translating needs onnxruntime, numpy and sentencepiece only.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..exporting import export_model
from ..model_files import check_files
from ..usage_error import UsageError
from .shell_commands import shell, show_next


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help="a checkpoint of a model of this package, or its folder")
    add("--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    add("--data", type=Path, metavar="FOLDER", help="folder with dictionaries (default: MODEL's, or the data)")
    add("--pieces", type=Path, metavar="FILE", help="SentencePiece model (default: beside MODEL or the data)")
    add("--source-lang", metavar="LANG", help="source language, if the checkpoint does not say")
    add("--target-lang", metavar="LANG", help="target language, if the checkpoint does not say")
    add("--int8", action="store_true", help="weights of matrix products in 8 bits: smaller, faster, less exact")


def run(args: Namespace) -> None:
    if args.output.absolute().parent.is_file():
        raise UsageError(f"--output {args.output}: {args.output.parent} is a file; name a new folder")
    if args.output.exists():
        raise UsageError(f"--output {args.output}: it exists; give another name")
    check_files(args.model, args.data, args.pieces)
    languages = {"source_lang": args.source_lang, "target_lang": args.target_lang}
    export_model(args.model, args.output, data=args.data, pieces=args.pieces, languages=languages, int8=args.int8)
    size = sum(file.stat().st_size for file in args.output.iterdir())
    print(f"{args.output}: {size / 1e6:.1f} MB")
    show_next("translate what you type", shell("python", "-m", "fairseq_luna.deployed", args.output))

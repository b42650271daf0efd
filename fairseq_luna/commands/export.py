"""Export a trained model to a folder that translates on a CPU, faster and without torch and fairseq.

    pip install onnx onnxscript onnxruntime
    fairseq-luna export checkpoints --output exported
    python -m fairseq_luna.deployed exported < text.en > text.de

The folder has the encoder and the decoder's step as ONNX, for any batch and beam and, where the attentions allow it,
any source length, with dictionaries and SentencePiece model. The graphs' numbers are compared with the model's. This
takes minutes; the folder itself needs onnxruntime, numpy and sentencepiece only.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import environment
from ..model_files import PathLike, check_files
from ..usage_error import UsageError
from .progress import working
from .steps import once, remove, shell, show_next

# Of log-probabilities in fp32: of all words, and of all but a hundredth.
NEAR, CLOSE = 1e-3, 1e-4
TRANSLATE = "use fairseq-luna translate"
ANOTHER_FORM = f"an attention may have another form from some length on; {TRANSLATE}"


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help="a checkpoint of a model of this package, or its folder")
    add("--output", type=Path, required=True, metavar="FOLDER", help="the new folder")
    add("--data", type=Path, metavar="FOLDER", help="with the dictionaries (default: MODEL's, or the training's)")
    add("--pieces", type=Path, metavar="FILE", help="SentencePiece model (default: beside MODEL or the data)")
    add("--source-lang", metavar="LANG", help="if the training was not told its languages")
    add("--target-lang", metavar="LANG")
    add("--int8", action="store_true", help="weights of matrix products as bytes: smaller, faster, less exact")


def run(args: Namespace) -> None:
    if args.output.absolute().parent.is_file():
        raise UsageError(f"--output {args.output}: {args.output.parent} is a file; name a new folder")
    if args.output.exists():
        raise UsageError(f"--output {args.output}: it exists; give another name")
    check_files(args.model, args.data, args.pieces)
    languages = {"source_lang": args.source_lang, "target_lang": args.target_lang}
    export(args.model, args.output, data=args.data, pieces=args.pieces, languages=languages, int8=args.int8)
    size = sum(file.stat().st_size for file in args.output.iterdir())
    print(f"{args.output}: {size / 1e6:.1f} MB")
    show_next("translate what you type", shell("python", "-m", "fairseq_luna.deployed", args.output))


def export(
    model: PathLike,
    output: Path,
    *,
    data: PathLike | None,
    pieces: PathLike | None,
    languages: Mapping[str, str | None],
    int8: bool = False,
) -> None:
    """Export the checkpoint at ``model`` to the new folder ``output``, and compare its numbers with the model's.

    Args:
        model, data, pieces: as of :func:`fairseq_luna.load`.
        output: is complete if it exists afterwards.
        languages: ``source_lang`` and ``target_lang``, if the training was not told them.
        int8: store the weights of matrix products as bytes.

    Raises:
        UsageError: the model cannot be loaded or exported, or the numbers of its graphs are not the model's.
    """
    environment.require_fairseq()
    try:
        from .exporting.comparison import difference
        from .exporting.folder import write_folder
        from .exporting.graphs import CANNOT
    except ImportError as error:
        raise UsageError(f"{error}; pip install onnx onnxscript onnxruntime") from error
    from ..loading import load

    given: dict[str, Any] = {name: value for name, value in languages.items() if value}
    translator = load(model, data=data, pieces=pieces, **given)

    def make(folder: Path) -> None:
        # Bytes would hide that a graph is wrong, so the exact ones are compared first.
        for as_bytes in (False, True) if int8 else (False,):
            remove(folder)
            folder.mkdir()
            try:
                write_folder(translator, folder, int8=as_bytes)
            except UsageError:
                raise
            except CANNOT as error:
                reason = type(error).__name__
                raise UsageError(
                    f"{model}: its attentions cannot be written as ONNX ({reason}); {TRANSLATE}"
                ) from error
            try:
                with working("comparing its numbers with the model's"):
                    worst, usual = difference(translator, folder)
            except RuntimeError as error:  # onnxruntime's; it has no class for that
                raise UsageError(f"{model}: a graph cannot be run; {ANOTHER_FORM}") from error
            kind = "int8" if as_bytes else "fp32"
            print(f"{kind}: log-probabilities of the graphs and of the model differ by {worst:.1e} at most", flush=True)
            if not (as_bytes or (worst <= NEAR and usual <= CLOSE)):
                raise UsageError(f"{model}: that is too much; {ANOTHER_FORM}")

    once("export", output, make)

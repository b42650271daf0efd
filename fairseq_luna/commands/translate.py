"""Translate text with a trained model, line by line.

    fairseq-luna translate checkpoints < text.en > text.de
    echo "Two dogs run." | fairseq-luna translate checkpoints --beam 5
    fairseq-luna translate checkpoints --nbest 3 --scores < text.en > three.de

MODEL is a folder that fairseq-train wrote, or a checkpoint in it. The input has one sentence per line. It is plain text
if the model was trained on data of fairseq-luna prepare. Empty lines stay empty. Without < text.en, type lines and end
with Ctrl-D.

The output has one translation per line. With --nbest N there are N lines for each line of the input, the best first.
--scores puts the score and a tab before each translation. --alignments puts a tab and the word alignment after it, such
as 0-1 1-0: pairs of a source word and a word of the translation, both numbered from 0.
"""

import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from importlib.util import find_spec
from typing import Any

from .. import environment
from ..command_line import require_open_streams
from ..exported_engine import ENGINES, ONNX, TORCH, exported_translator
from ..line_translation import (
    BEAM,
    TEXT,
    TRAINED,
    WHOLE,
    YES,
    add_stream_flags,
    end_at_signals,
    given_options,
    translate_input,
)
from ..model_files import check_files
from ..search_options import check_search
from ..usage_error import UsageError, flag

MANY = 1000  # lines after which --engine onnx is suggested
SEARCHES = ("fairseq", "recorded")  # as in models/shared/config.py, which imports fairseq
# Options of loading a model.
LOADING: dict[str, dict[str, Any]] = {
    "source_lang": {"metavar": "LANG", "help": "source language, if the checkpoint does not say or has several"},
    "target_lang": {"metavar": "LANG", "help": "target language, if the checkpoint does not say or has several"},
    "max_source_positions": {**WHOLE, "help": "maximum number of tokens in a source line (default: as in training)"},
    "search": {
        "choices": SEARCHES,
        "help": "beam search: fairseq's, or one that finds the same translations and replays each step as a CUDA graph",
    },
    "fp16": {**YES, "help": "compute in half precision, on a GPU"},
    "bf16": {**YES, "help": "compute in bfloat16, on a GPU or a CPU"},
}
# Flags that --engine onnx refuses.
ONLY_TORCH = (*TRAINED, "max_source_positions", "search", "fp16", "bf16")


def add_flags(parser: ArgumentParser) -> None:
    """Add the command's flags."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a checkpoint, several with : between them, or a folder with checkpoint_best.pt")
    add(
        "--data",
        metavar="FOLDER",
        help="folder with the dictionaries, or the one that prepare made (default: MODEL's, or the training data)",
    )
    add(
        "--pieces",
        metavar="FILE",
        help="SentencePiece model or BPE codes (default: beside MODEL or the data), or none for text in subwords",
    )
    add("--device", default="cpu", help="device of the model, such as cuda (default: %(default)s)")
    add(
        "--engine",
        choices=ENGINES,
        default=TORCH,
        help="onnx: export the model once, beside the checkpoint, and translate on a CPU several times as fast",
    )
    add("--seed", type=int, metavar="N", help="random seed of --sampling")
    add_stream_flags(parser, LOADING, TEXT, TRAINED)


def run(args: Namespace) -> None:
    """Translate standard input.

    Raises:
        UsageError: the model cannot be loaded, or a line is longer than the model's maximum.
    """
    end_at_signals()
    loading, options = given_options(args, LOADING), given_options(args, [*TEXT, *TRAINED])
    check_search({"beam": BEAM, **options}, vocabulary_size=sys.maxsize, spelled=flag)
    if args.seed is not None and not args.sampling:
        raise UsageError(f"--seed {args.seed}: has an effect only with --sampling")
    check_files(args.model, args.data, args.pieces)
    if args.engine == ONNX:
        check_exported(args)
    require_open_streams()
    environment.require_fairseq()
    from tqdm import tqdm

    progress = partial(tqdm, unit=" lines")
    if args.engine == ONNX:
        languages = {name: getattr(args, name) for name in ("source_lang", "target_lang")}
        translator = exported_translator(args.model, data=args.data, pieces=args.pieces, **languages)
        translate_input(translator, args.buffer_size, progress, **{"beam": BEAM, **options})
        return
    import torch

    from ..loading import load_translator

    if args.seed is not None:
        torch.manual_seed(args.seed)
    translator = load_translator(args.model, device=args.device, data=args.data, pieces=args.pieces, **loading)
    lines = translate_input(translator, args.buffer_size, progress, **{"beam": BEAM, **options})
    if lines >= MANY and can_be_exported(args, translator):
        print(
            "on a CPU, --engine onnx is faster for this many lines; its first call exports the model, in a minute",
            file=sys.stderr,
        )


def check_exported(args: Namespace) -> None:
    """Raises UsageError for a flag that the exported engine does not have."""
    for name in given_options(args, ONLY_TORCH):
        raise UsageError(f"{flag(name)}: the exported engine does not have it; leave --engine {ONNX} out")
    if args.device != "cpu":
        raise UsageError(f"--device {args.device}: the exported engine is for a CPU; leave --engine {ONNX} out")


def can_be_exported(args: Namespace, translator: Any) -> bool:
    """Whether --engine onnx supports this model and these flags."""
    is_one_own_model = len(translator.models) == 1 and hasattr(translator.models[0].decoder, "read_source")
    return (
        is_one_own_model
        and args.device == "cpu"
        and not given_options(args, ONLY_TORCH)
        and find_spec("onnxruntime") is not None
    )

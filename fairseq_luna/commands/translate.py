"""Translate text with a trained model, line by line.

    fairseq-luna translate checkpoints < text.en > text.de
    echo "Two dogs run." | fairseq-luna translate checkpoints --beam 5
    fairseq-luna translate checkpoints --nbest 3 --scores < text.en > three.de

MODEL is a folder that fairseq-train wrote, or a checkpoint in it. The text has a sentence a line, plain text for a
model of data that fairseq-luna prepare made. Empty lines stay empty. Without < text, type lines; Ctrl-D ends.

A line of the output is a translation. With --nbest N each line of the text has N, the best first; with --scores the
score and a tab are before it; with --alignments a tab and the alignment are after it, such as 0-1 1-0: pairs of a word
of the source and a word of the translation, numbered from 0 between spaces.
"""

import math
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any

from .. import environment
from ..exported_engine import ENGINES, ONNX, TORCH, exported_translator
from ..model_files import check_files
from ..search_options import check_numbers, check_search
from ..translation import EMPTY, Translation
from ..usage_error import UnreadableText, UsageError, flag
from .standard_streams import require_open
from .text_files import decoded

BEAM = 5
MANY = 300  # lines from which on an export pays
SEARCHES = ("fairseq", "recorded")  # as in models/shared/config.py, which imports fairseq
WHOLE, NUMBER, YES = {"type": int, "metavar": "N"}, {"type": float, "metavar": "X"}, {"action": "store_true"}
# How a model is loaded.
LOADING: dict[str, dict[str, Any]] = {
    "source_lang": {"metavar": "LANG", "help": "source language, if the training was not told, or had several"},
    "target_lang": {"metavar": "LANG", "help": "target language, if the training was not told, or had several"},
    "max_source_positions": {**WHOLE, "help": "longest source sentence in pieces (default: the training's)"},
    "search": {
        "choices": SEARCHES,
        "help": "beam search: fairseq's, or one with the same results that a GPU replays as one graph for each token",
    },
    "fp16": {**YES, "help": "compute in half precision, on a GPU"},
    "bf16": {**YES, "help": "compute in bfloat16, on a GPU or a CPU"},
}
# How a text is translated, also with an exported model.
TEXT: dict[str, dict[str, Any]] = {
    "beam": {**WHOLE, "help": f"candidates of the search: more is slower, and better up to about 5 (default: {BEAM})"},
    "nbest": {**WHOLE, "help": "print the N best translations of each line; at most --beam"},
    "scores": {**YES, "help": "print the score before each translation: log-probability by length"},
    "lenpen": {**NUMBER, "help": "length penalty: above 1 prefers longer translations (default: 1)"},
    "max_len_a": {**NUMBER, "help": "longest translation: A pieces for each of the source, plus B (default: 0)"},
    "max_len_b": {**WHOLE, "help": "(default: 200)"},
    "min_len": {**WHOLE, "help": "pieces of a translation at least (default: 1)"},
    "batch_size": {**WHOLE, "help": "lines in a batch, in place of --max-tokens"},
    "max_tokens": {**WHOLE, "help": "pieces in a batch, with padding (default: the training's)"},
}
# The same, with a trained model alone.
TRAINED: dict[str, dict[str, Any]] = {
    "alignments": {**YES, "help": "print which words of the line and of the translation belong together"},
    "replace_unk": {
        **{"nargs": "?", "const": True, "metavar": "FILE"},
        "help": "put the aligned word of the source for each <unk>, or its translation in FILE",
    },
    "sampling": {**YES, "help": "draw words at random; --beam is the number of translations that are drawn"},
    "sampling_topk": {**WHOLE, "help": "draw from the N likeliest words"},
    "sampling_topp": {**NUMBER, "help": "draw from the likeliest words whose probability is X in total"},
    "temperature": {**NUMBER, "help": "above 1 makes unlikely words likelier, below 1 less likely (default: 1)"},
}
# What --engine onnx does not have.
ONLY_TORCH = (*TRAINED, "max_source_positions", "search", "fp16", "bf16")


def add_flags(parser: ArgumentParser) -> None:
    """Add the command's flags."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a checkpoint, several with : between them, or a folder with checkpoint_best.pt")
    add(
        "--data",
        metavar="FOLDER",
        help="the dictionaries' folder, or prepare's (default: MODEL's, or the training's)",
    )
    add(
        "--pieces",
        metavar="FILE",
        help="SentencePiece model or codes (default: those beside MODEL or the data); none: text is in pieces",
    )
    add("--device", default="cpu", help="such as cuda (default: %(default)s)")
    add(
        "--engine",
        choices=ENGINES,
        default=TORCH,
        help="onnx: export the model once, beside the checkpoint, and translate on a CPU several times as fast",
    )
    add("--seed", type=int, metavar="N", help="of what --sampling draws")
    add_stream_flags(parser, LOADING, TEXT, TRAINED)


def add_stream_flags(parser: ArgumentParser, *options: dict[str, dict[str, Any]]) -> None:
    """Add the flags for reading text, and ``options``."""
    add = parser.add_argument
    add("--buffer-size", type=int, default=256, metavar="N", help="lines that are read at once (default: %(default)s)")
    for name, settings in (each for some in options for each in some.items()):
        add(flag(name), **settings)


def given(args: Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The values of these flags that the user gave. Raises UsageError for a number that cannot be."""
    values = {name: getattr(args, name) for name in names}
    values = {name: value for name, value in values.items() if value is not None and value is not False}  # 0 is given
    check_numbers({"buffer_size": args.buffer_size, **values})
    return values


def run(args: Namespace) -> None:
    """Translate standard input.

    Raises:
        UsageError: the model cannot be loaded, or a line is longer than it reads.
    """
    end_at_signals()
    loading, options = given(args, LOADING), given(args, [*TEXT, *TRAINED])
    check_search({"beam": BEAM, **options}, words=sys.maxsize)
    if args.seed is not None and not args.sampling:
        raise UsageError(f"--seed {args.seed}: has an effect only with --sampling")
    check_files(args.model, args.data, args.pieces)
    if args.engine == ONNX:
        check_exported(args)
    require_open()
    environment.require_fairseq()
    from tqdm import tqdm

    progress = partial(tqdm, unit=" lines")
    if args.engine == ONNX:
        languages = {name: getattr(args, name) for name in ("source_lang", "target_lang")}
        translator = exported_translator(args.model, data=args.data, pieces=args.pieces, **languages)
        write(translator, args.buffer_size, progress, **{"beam": BEAM, **options})
        return
    import torch

    from ..loading import load

    if args.seed is not None:
        torch.manual_seed(args.seed)
    translator = load(args.model, device=args.device, data=args.data, pieces=args.pieces, **loading)
    lines = write(translator, args.buffer_size, progress, **{"beam": BEAM, **options})
    if lines >= MANY and can_be_exported(args, translator):
        print("for so many lines on a CPU, --engine onnx is faster: it exports the model once", file=sys.stderr)


def check_exported(args: Namespace) -> None:
    """Raises UsageError for a flag that the exported engine does not have."""
    for name in given(args, ONLY_TORCH):
        raise UsageError(f"{flag(name)}: the exported engine does not have it; leave --engine {ONNX} out")
    if args.device != "cpu":
        raise UsageError(f"--device {args.device}: the exported engine is for a CPU; leave --engine {ONNX} out")


def can_be_exported(args: Namespace, translator: Any) -> bool:
    """Whether --engine onnx could have translated what was asked for."""
    ours = len(translator.models) == 1 and hasattr(translator.models[0].decoder, "read_source")
    return ours and args.device == "cpu" and not given(args, ONLY_TORCH) and find_spec("onnxruntime") is not None


def end_at_signals() -> None:
    """End this process without a traceback at Ctrl-C, also during imports, and where the output is closed (| head)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def write(
    translator: Any, buffer_size: int, progress: Callable[..., Iterable[str]] | None = None, **options: Any
) -> int:
    """Translate standard input to standard output, ``buffer_size`` lines at once, or each as it is typed.

    Returns:
        The number of lines that were written.
    """
    written = 0
    size = 1 if sys.stdin.isatty() else buffer_size
    with (
        open(sys.stdin.fileno(), "rb", closefd=False) as source,
        open(sys.stdout.fileno(), "w", encoding="utf-8", closefd=False) as target,
    ):
        unknown = UnknownTokens(translator)
        lines: Iterable[str] = translated(translator, unknown.counted(decoded(source)), size, **options)
        if progress is not None:
            lines = progress(lines, disable=target.isatty() or None)
        for line in lines:
            print(line, file=target, flush=True)
            written += 1
    if unknown.tokens:
        print(unknown, file=sys.stderr)
    return written


class UnknownTokens:
    """Counts the tokens of text, and those that the model's dictionary lacks: it translates these by chance."""

    def __init__(self, translator: Any) -> None:
        self.translator = translator
        self.tokens = self.total = 0

    def counted(self, lines: Iterable[str]) -> Iterator[str]:
        """``lines``, which are counted as they are read."""
        for line in lines:
            with suppress(UnreadableText):  # whoever translates the line reports it
                unknown, total = self.translator.unknown_tokens(line)
                self.tokens, self.total = self.tokens + unknown, self.total + total
            yield line

    def __str__(self) -> str:
        share = 100 * self.tokens / self.total
        return f"the model does not know {share:.2g} % of the text's tokens ({self.tokens:,} of {self.total:,})"


def translated(translator: Any, lines: Iterable[str], size: int, **options: Any) -> Iterator[str]:
    """The lines of the output for ``lines``, of which ``size`` are read at once.

    Args:
        translator: of this package's, trained or exported.
        options: of its ``translate``.

    Raises:
        UsageError: a line cannot be read or translated; it is named, and those before it are translated first.
    """
    lines, number = iter(lines), 0
    unreadable = None
    while unreadable is None:
        some: list[str] = []
        try:
            some.extend(line.strip(" ") for line in islice(lines, size))  # other white space may be text
        except UsageError as error:
            unreadable = error
        if not some:
            break
        try:
            results = translator.translate(some, **options)
        except UsageError:
            results = one_by_one(translator, some, number + 1, **options)
        for result in results:
            yield from printed(result, **options)
        number += len(some)
    if unreadable is not None:
        raise unreadable


def printed(
    result: Any, *, nbest: int | None = None, scores: bool = False, alignments: bool = False, **_: Any
) -> Iterator[str]:
    """The lines of the output for one ``result`` of ``translate`` with these options: as many for every text."""
    found = [each if isinstance(each, Translation) else EMPTY._replace(text=each) for each in result if nbest]
    if not nbest:
        found = [result if isinstance(result, Translation) else EMPTY._replace(text=result)]
    found += [EMPTY._replace(score=-math.inf)] * ((nbest or 1) - len(found))  # a text that says nothing has one
    for translation in found:
        fields = [f"{translation.score:.4f}"] if scores else []
        fields.append(translation.text)
        if alignments:
            fields.append(" ".join(f"{ours}-{theirs}" for ours, theirs in translation.alignment or ()))
        yield "\t".join(fields)


def one_by_one(translator: Any, lines: Iterable[str], first: int, **options: Any) -> Iterator[Any]:
    """The results of translating ``lines``, which are numbered from ``first`` in an error."""
    for number, line in enumerate(lines, first):
        try:
            yield translator.translate(line, **options)
        except UnreadableText as error:
            raise UsageError(f"line {number}: {error}") from error

"""Translate text with a trained model, line by line.

    fairseq-luna translate checkpoints < text.en > text.de
    echo "Two dogs run." | fairseq-luna translate checkpoints --beam 5

MODEL is a folder that fairseq-train wrote, or a checkpoint in it. The text has a sentence a line, plain text for a
model of data that fairseq-luna prepare made. Empty lines stay empty. Without < text, type lines; Ctrl-D ends.
"""

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from .. import environment
from ..search_options import check_numbers
from ..usage_error import UnreadableText, UsageError, flag
from .text_files import decoded

# Flags of fairseq's with their types: of its configuration, and of its generation.
CONFIG = {"source_lang": str, "target_lang": str, "max_tokens": int, "max_source_positions": int}
GENERATION = {"beam": int, "lenpen": float, "max_len_a": float, "max_len_b": int}
MEANINGS = {
    "source_lang": "source language, if the training was not told",
    "target_lang": "target language, if the training was not told",
    "max_tokens": "pieces in a batch, with padding (default: the training's)",
    "max_source_positions": "longest source sentence in pieces (default: the training's)",
    "beam": "candidates of the search: more is slower, and better up to about 5 (default: 5)",
    "lenpen": "length penalty: above 1 prefers longer translations (default: 1)",
    "max_len_a": "longest translation: A pieces for each of the source, plus B (default: 0)",
    "max_len_b": "(default: 200)",
}


def add_flags(parser: ArgumentParser) -> None:
    """Add the command's flags."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a checkpoint, several with : between them, or a folder with checkpoint_best.pt")
    add("--data", metavar="FOLDER", help="folder with the dictionaries (default: MODEL's, or the training's)")
    add(
        "--pieces",
        metavar="FILE",
        help="SentencePiece model or codes (default: those beside MODEL or the data); none: text is in pieces",
    )
    add("--device", default="cpu", help="such as cuda (default: %(default)s)")
    add_stream_flags(parser, CONFIG | GENERATION)


def add_stream_flags(parser: ArgumentParser, options: Mapping[str, type] = GENERATION) -> None:
    """Add the flags for reading text, and ``options``."""
    add = parser.add_argument
    add("--buffer-size", type=int, default=256, metavar="N", help="lines that are read at once (default: %(default)s)")
    for name, kind in options.items():
        add(flag(name), type=kind, metavar="LANG" if kind is str else "N", help=MEANINGS[name])


def given(args: Namespace, names: Iterable[str] = GENERATION) -> dict[str, Any]:
    """The values of these flags that the user gave. Raises UsageError for a number that cannot be."""
    values = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    check_numbers({"buffer_size": args.buffer_size, **values})
    return values


def run(args: Namespace) -> None:
    """Translate standard input.

    Raises:
        UsageError: the model cannot be loaded, or a line is longer than it reads.
    """
    end_at_signals()
    options, config = given(args), given(args, CONFIG)
    environment.require_fairseq()
    from tqdm import tqdm

    from ..loading import load

    translator = load(args.model, data=args.data, pieces=args.pieces, **config)
    try:
        translator.to(args.device)
    except (AssertionError, RuntimeError) as error:
        raise UsageError(f"--device {args.device}: {str(error).splitlines()[0]}") from error
    write(translator, args.buffer_size, partial(tqdm, unit=" lines"), **options)


def end_at_signals() -> None:
    """End this process without a traceback at Ctrl-C, also during imports, and where the output is closed (| head)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def write(
    translator: Any, buffer_size: int, progress: Callable[..., Iterable[str]] | None = None, **options: Any
) -> None:
    """Translate standard input to standard output, ``buffer_size`` lines at once, or each as it is typed."""
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
    if unknown.tokens:
        print(unknown, file=sys.stderr)


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
    """A translation for each of ``lines``, of which ``size`` are read at once.

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
            yield from translator.translate(some, **options)
        except UsageError:
            yield from one_by_one(translator, some, number + 1, **options)
        number += len(some)
    if unreadable is not None:
        raise unreadable


def one_by_one(translator: Any, lines: Iterable[str], first: int, **options: Any) -> Iterator[str]:
    """The translations of ``lines``, which are numbered from ``first`` in the error for one that cannot be read."""
    for number, line in enumerate(lines, first):
        try:
            yield translator.translate(line, **options)
        except UnreadableText as error:
            raise UsageError(f"line {number}: {error}") from error

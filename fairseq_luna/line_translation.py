"""Translating standard input to standard output, line by line, with a trained or an exported model.

``fairseq-luna translate`` and ``python -m fairseq_luna.deployed`` share the flags and the loop in this file.
"""

import math
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from .search_options import check_numbers
from .text_files import decode_lines
from .translation import EMPTY, Translation
from .usage_error import UnreadableText, UsageError, flag

BEAM = 5
WHOLE, DECIMAL, YES = {"type": int, "metavar": "N"}, {"type": float, "metavar": "X"}, {"action": "store_true"}
# Options of translating a text, with a trained or an exported model.
TEXT: dict[str, dict[str, Any]] = {
    "beam": {
        **WHOLE,
        "help": f"candidates of the beam search: more is slower, and better up to 5 or so (default: {BEAM})",
    },
    "nbest": {**WHOLE, "help": "print the N best translations of each line; at most --beam"},
    "scores": {**YES, "help": "print the score before each translation: log-probability / length ** --lenpen"},
    "lenpen": {**DECIMAL, "help": "length penalty, such as 0.6: above 1 prefers longer translations (default: 1.0)"},
    "max_len_a": {
        **DECIMAL,
        "metavar": "A",
        "help": "stop a translation after A * source length + B tokens, B being --max-len-b (default: 0.0)",
    },
    "max_len_b": {**WHOLE, "metavar": "B", "help": "see --max-len-a (default: 200)"},
    "min_len": {**WHOLE, "help": "minimum number of tokens in a translation (default: 1)"},
    "batch_size": {**WHOLE, "help": "lines per batch, instead of --max-tokens"},
    "max_tokens": {
        **WHOLE,
        "help": "maximum number of source tokens per batch, padding included (default: as in training)",
    },
}
# Options that only a trained model has.
TRAINED: dict[str, dict[str, Any]] = {
    "alignments": {**YES, "help": "print which source word each word of the translation is aligned with"},
    "replace_unk": {
        **{"nargs": "?", "const": True, "metavar": "FILE"},
        "help": "replace each <unk> by the source word that it is aligned with, or by the word's translation in FILE",
    },
    "sampling": {**YES, "help": "sample tokens instead of searching; --beam is the number of samples per line"},
    "sampling_topk": {**WHOLE, "help": "sample from the N most probable tokens"},
    "sampling_topp": {**DECIMAL, "help": "sample from the most probable tokens whose probabilities add up to X"},
    "temperature": {
        **DECIMAL,
        "help": "divide the logits by X: above 1 the samples are more random, below 1 less (default: 1.0)",
    },
}


def add_stream_flags(parser: ArgumentParser, *options: dict[str, dict[str, Any]]) -> None:
    """Add --buffer-size and the flags of ``options``."""
    add = parser.add_argument
    add(
        "--buffer-size",
        type=int,
        default=256,
        metavar="N",
        help="number of lines that are read at once (default: %(default)s)",
    )
    for name, settings in (each for some in options for each in some.items()):
        add(flag(name), **settings)


def given_options(args: Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The values of the flags ``names`` that the user gave. Raises UsageError for a number that is out of range."""
    values = {name: getattr(args, name) for name in names}
    values = {name: value for name, value in values.items() if value is not None and value is not False}  # 0 is given
    check_numbers({"buffer_size": args.buffer_size, **values}, spelled=flag)
    return values


def end_at_signals() -> None:
    """End this process without a traceback at Ctrl-C, also during imports, and where the output is closed (| head)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def translate_input(
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
        lines: Iterable[str] = translate_lines(translator, unknown.counted(decode_lines(source)), size, **options)
        if progress is not None:
            lines = progress(lines, disable=target.isatty() or None)
        for line in lines:
            print(line, file=target, flush=True)
            written += 1
    if unknown.tokens:
        print(unknown, file=sys.stderr)
    return written


class UnknownTokens:
    """Counts the tokens of a text, and the tokens that are unknown to the model's dictionary."""

    def __init__(self, translator: Any) -> None:
        self.translator = translator
        self.tokens = self.total = 0

    def counted(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield ``lines``, and count their tokens."""
        for line in lines:
            with suppress(UnreadableText):  # whoever translates the line reports it
                unknown, total = self.translator.unknown_tokens(line)
                self.tokens, self.total = self.tokens + unknown, self.total + total
            yield line

    def __str__(self) -> str:
        share = 100 * self.tokens / self.total
        return f"the model does not know {share:.2g} % of the text's tokens ({self.tokens:,} of {self.total:,})"


def translate_lines(translator: Any, lines: Iterable[str], size: int, **options: Any) -> Iterator[str]:
    """Yield the output lines for ``lines``, which are read and translated ``size`` at a time.

    Args:
        translator: a translator of this package, trained or exported.
        options: keyword arguments of its ``translate``.

    Raises:
        UsageError: a line cannot be read or translated. The message names it, after the lines before it are translated.
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
            yield from output_lines(result, **options)
        number += len(some)
    if unreadable is not None:
        raise unreadable


def output_lines(
    result: Any, *, nbest: int | None = None, scores: bool = False, alignments: bool = False, **_: Any
) -> Iterator[str]:
    """Yield the output lines for one ``result`` of ``translate`` with these options: equally many for every text."""
    translations = [each if isinstance(each, Translation) else EMPTY._replace(text=each) for each in result if nbest]
    if not nbest:
        translations = [result if isinstance(result, Translation) else EMPTY._replace(text=result)]
    # A blank text has one translation.
    translations += [EMPTY._replace(score=-math.inf)] * ((nbest or 1) - len(translations))
    for translation in translations:
        fields = [f"{translation.score:.4f}"] if scores else []
        fields.append(translation.text)
        if alignments:
            pairs = translation.alignment or ()
            fields.append(" ".join(f"{source_place}-{target_place}" for source_place, target_place in pairs))
        yield "\t".join(fields)


def one_by_one(translator: Any, lines: Iterable[str], first: int, **options: Any) -> Iterator[Any]:
    """Translate each of ``lines`` alone, so that an error names its number; the first one has the number ``first``."""
    for number, line in enumerate(lines, first):
        try:
            yield translator.translate(line, **options)
        except UnreadableText as error:
            raise UsageError(f"line {number}: {error}") from error

"""``python -m fairseq_luna.deployed FOLDER``: translate lines of text with an exported model."""

import sys
from argparse import Namespace
from pathlib import Path

from ..command_line import CommandError, Parser, open_standard_streams, require_open_streams, run_and_report
from ..line_translation import (
    BEAM,
    TEXT,
    TRAINED,
    add_stream_flags,
    end_at_signals,
    given_options,
    translate_input,
)
from ..search_options import check_search
from ..usage_error import flag
from .folder import SETTINGS, read_settings

DESCRIPTION = """\
Translate standard input to standard output, line by line, with an exported model.

An exported model computes in fp32 or int8, on a CPU. It supports neither sampling nor alignments nor --replace-unk, for
which fairseq-luna translate needs the checkpoint.
"""
PROGRAM = "fairseq_luna.deployed"
# Flags of fairseq-luna translate that are refused here, with the reason.
ELSEWHERE = {
    **dict.fromkeys(TRAINED, "is not supported by exported models"),
    **dict.fromkeys(("fp16", "bf16", "device"), "an exported model computes on a CPU, in fp32 or int8"),
    **dict.fromkeys(("data", "pieces", "source_lang", "target_lang"), "the exported folder contains it"),
    "max_source_positions": "is fixed when the model is exported",
    "seed": "exported models do not sample",
}


def main() -> int:
    open_standard_streams()
    return run_and_report(PROGRAM, run)


def run() -> None:
    """Translate standard input. Raises UsageError if the folder, a flag or a line of the text cannot be used."""
    args = parse_arguments(sys.argv[1:])
    end_at_signals()
    options = given_options(args, TEXT)
    check_search({"beam": BEAM, **options}, vocabulary_size=sys.maxsize, spelled=flag)
    if not Path(args.folder, SETTINGS).is_file():  # before onnxruntime is imported
        read_settings(Path(args.folder))
    require_open_streams()
    try:
        from . import Translator
    except ImportError as error:
        raise CommandError(str(error), status=1) from error
    translate_input(Translator(args.folder, threads=args.threads), args.buffer_size, **options)


def parse_arguments(argv: list[str]) -> Namespace:
    """Parse the arguments. Raises CommandError for wrong ones."""
    parser = Parser(DESCRIPTION, prog=f"python -m {PROGRAM}", allow_abbrev=False)
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="folder that fairseq-luna export made")
    add("--threads", type=int, default=1, metavar="N", help="number of CPU threads (default: %(default)s)")
    add_stream_flags(parser, TEXT)
    for name, reason in ELSEWHERE.items():
        if any(word.partition("=")[0] == flag(name) for word in argv):
            raise CommandError(f"{flag(name)}: {reason}; use fairseq-luna translate with the checkpoint")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

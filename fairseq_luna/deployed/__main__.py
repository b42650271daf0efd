"""``python -m fairseq_luna.deployed FOLDER``: translate lines of text with an exported model."""

import sys
from argparse import Namespace
from pathlib import Path

from ..commands import standard_streams, translate
from ..commands.command_line import CommandError, Parser, reported
from ..search_options import check_search
from ..usage_error import flag
from .folder import SETTINGS, settings_of

DESCRIPTION = """\
Translate standard input to standard output, line by line, with an exported model.

Its graphs give the best words alone, so that there is no sampling, and neither alignments nor --replace-unk; they
compute in fp32, or int8, on a CPU. fairseq-luna translate has these, with the checkpoint.
"""
PROGRAM = "fairseq_luna.deployed"
# Flags of fairseq-luna translate, and why they are not here.
ELSEWHERE = {
    **dict.fromkeys(translate.TRAINED, "the graphs of an exported model do not give it"),
    **dict.fromkeys(("fp16", "bf16", "device"), "an exported model computes on a CPU, in fp32 or int8"),
    **dict.fromkeys(("data", "pieces", "source_lang", "target_lang"), "an exported folder has its own"),
    "max_source_positions": "it is set in exporting",
    "seed": "nothing is drawn",
}


def main() -> int:
    standard_streams.prepare()
    return reported(PROGRAM, run)


def run() -> None:
    """Raises UsageError if the folder, a flag or a line of the text cannot be used."""
    args = parsed(sys.argv[1:])
    translate.end_at_signals()
    options = translate.given(args, translate.TEXT)
    check_search({"beam": translate.BEAM, **options}, words=sys.maxsize)
    if not Path(args.folder, SETTINGS).is_file():  # before onnxruntime is imported
        settings_of(Path(args.folder))
    standard_streams.require_open()
    try:
        from . import Translator
    except ImportError as error:
        raise CommandError(str(error), status=1) from error
    translate.write(Translator(args.folder, threads=args.threads), args.buffer_size, **options)


def parsed(given: list[str]) -> Namespace:
    """The arguments. Raises CommandError for wrong ones."""
    parser = Parser(DESCRIPTION, prog=f"python -m {PROGRAM}", allow_abbrev=False)
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="made by fairseq-luna export")
    add("--threads", type=int, default=1, metavar="N", help="CPU threads (default: %(default)s)")
    translate.add_stream_flags(parser, translate.TEXT)
    for name, reason in ELSEWHERE.items():
        if any(word.partition("=")[0] == flag(name) for word in given):
            raise CommandError(f"{flag(name)}: {reason}; use fairseq-luna translate with the checkpoint")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m fairseq_luna.deployed FOLDER``: translate lines of text with an exported model."""

import sys
from argparse import ArgumentParser

from ..commands import translate
from ..usage_error import UsageError

DESCRIPTION = "Translate standard input to standard output, line by line, with an exported model."


def main() -> int:
    parser = ArgumentParser(prog="python -m fairseq_luna.deployed", description=DESCRIPTION)
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="made by fairseq-luna export")
    add("--threads", type=int, default=1, metavar="N", help="CPU threads (default: %(default)s)")
    translate.add_stream_flags(parser)
    args = parser.parse_args()
    translate.end_at_signals()
    try:
        options = translate.given(args)
        from . import Translator

        translate.write(Translator(args.folder, threads=args.threads), args.buffer_size, **options)
    except (ImportError, UsageError) as error:
        print(f"fairseq_luna.deployed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m fairseq_luna.deployed FOLDER``: translate lines of text with an exported model."""

import sys

from ..commands import translate
from ..commands.command_line import CommandError, Parser, reported

DESCRIPTION = "Translate standard input to standard output, line by line, with an exported model."


def main() -> int:
    return reported("fairseq_luna.deployed", run)


def run() -> None:
    parser = Parser(DESCRIPTION, prog="python -m fairseq_luna.deployed", allow_abbrev=False)
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="made by fairseq-luna export")
    add("--threads", type=int, default=1, metavar="N", help="CPU threads (default: %(default)s)")
    translate.add_stream_flags(parser)
    args = parser.parse_args()
    translate.end_at_signals()
    options = translate.given(args)
    try:
        from . import Translator

        translator = Translator(args.folder, threads=args.threads)
    except ImportError as error:
        raise CommandError(str(error), status=1) from error
    translate.write(translator, args.buffer_size, **options)


if __name__ == "__main__":
    sys.exit(main())

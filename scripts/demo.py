"""From nothing to a translation model in a few minutes: corpus, SentencePiece, fairseq's commands, sacreBLEU.

    python scripts/demo.py [--arch transformer_tiny] [--max-update 40]
    python scripts/demo.py --arch mixed_tiny --attention fastformer

What the folder holds is reused, and an interrupted training resumes from its last checkpoint. The score differs by
about a point of BLEU between machines: sums are rounded differently, and a short training amplifies that.
"""

import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from demo_corpus import corpus
from demo_training import steps
from demo_training.recipes import MAX_UPDATE, RECIPES
from fairseq_luna.commands.command_line import CommandError, Parser, command, positive
from fairseq_luna.commands.preparing import settings
from fairseq_luna.commands.scoring import pieces
from fairseq_luna.commands.scoring.generated import read_both
from fairseq_luna.commands.scoring.measures import score
from fairseq_luna.commands.steps import USER_DIR, once, program, shortest

_EXAMPLES = 12


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--arch", choices=tuple(RECIPES), default="luna_tiny", help="default: luna_tiny")
    parser.add_argument(
        "--attention",
        metavar="NAME",
        help="of mixed_tiny, in encoder and decoder where it can stand there; default: softmax",
    )
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where everything is kept; default: demo")
    parser.add_argument("--max-update", type=positive, default=MAX_UPDATE, help=f"default: {MAX_UPDATE}")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    name, flags = args.arch, RECIPES[args.arch]
    if args.attention is not None:
        name, flags = f"{name}-{args.attention}", (*flags, *attention_flags(args))
    run(args.folder, name, flags, args.max_update, args.seed)


def attention_flags(args: Namespace) -> Sequence[str]:
    if args.arch != "mixed_tiny":
        raise CommandError(f"--attention {args.attention}: is for --arch mixed_tiny")
    # fairseq takes seconds to import.
    from shared import by_name

    if args.attention not in by_name.ATTENTIONS:
        raise CommandError(f"--attention {args.attention}: choose one of {', '.join(by_name.ATTENTIONS)}")
    return by_name.flags_for(args.attention)


def run(folder: Path, name: str, flags: Sequence[str], max_update: int, seed: int) -> None:
    texts, model, data = folder / "corpus", folder / "sentencepiece", folder / "data-bin"
    # Another seed or length is another training, with its own checkpoint.
    trained = folder / f"{name}-{max_update}-updates-seed-{seed}"
    checkpoint = trained / "checkpoint_last.pt"
    made_from = {"corpus": corpus.digest(), "vocabulary": steps.VOCABULARY}
    for kept, chosen in ((folder, made_from), (trained, {**made_from, "flags": flags})):
        settings.check(kept, chosen, "--folder")
        settings.keep(kept, chosen)

    def train(finished: Path) -> None:
        steps.train(data, trained, flags, max_update, seed)
        finished.touch()

    once("corpus", texts, corpus.write)
    once("SentencePiece model", model, lambda target: steps.learn_pieces(texts, target))
    once("data", data, lambda target: steps.binarise(texts, model / "joint.model", target))
    once("training", trained / "finished", train)
    generated = trained / "test.generated"
    once("translations", generated, lambda target: steps.translate(data, checkpoint, target))
    report(texts, generated)
    print(f"checkpoint: {checkpoint}")
    print("a sentence of your own:")
    print(f"  {interactive_command(data, model / 'joint.model', checkpoint)}")


def report(texts: Path, generated: Path) -> None:
    sources, references = (
        (texts / f"test.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")
    )
    translated = read_both([generated], remove_bpe=pieces.NONE).tokens
    bleu = score(translated, references).bleu
    exact = sum(map(str.__eq__, translated, references))
    for index in range(0, len(sources), len(sources) // _EXAMPLES)[:_EXAMPLES]:
        print(f"\n  source     {sources[index]}\n  reference  {references[index]}\n  hypothesis {translated[index]}")
    print(f"\nsacreBLEU {bleu.score:.2f} on {len(references)} held-out sentences, {exact} of them exact")
    print("(the score of the full training differs by about a point between machines)")
    print(f"signature {bleu.signature}")
    speed = re.findall(r"([\d.]+) tokens/s\)", generated.read_text(encoding="utf-8"))[-1]
    print(f"translated at {speed} tokens a second")


def interactive_command(data: Path, model: Path, checkpoint: Path) -> str:
    """A command to paste into a shell in the current folder."""
    arguments = [data, "--user-dir", USER_DIR, "--path", checkpoint, "--beam", "4"]
    arguments += ["--bpe", "sentencepiece", "--sentencepiece-model", model]
    shown = shlex.join(shortest(part) if isinstance(part, Path) else part for part in arguments)
    return f"echo 'The old teacher calls me on Monday.' | {program('fairseq-interactive')} {shown}"


if __name__ == "__main__":
    sys.exit(main())

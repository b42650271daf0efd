"""From nothing to a translation model in a few minutes: corpus, SentencePiece, fairseq's commands, sacreBLEU.

    python scripts/demo.py [--arch transformer_tiny] [--max-update 40]

What is already in the folder is reused, and an interrupted training goes on where it stopped.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path

import demo_score
import demo_steps
from demo_corpus import corpus
from demo_recipes import RECIPES
from steps import USER_DIR, StepFailed, once

_EXAMPLES = 12


def main() -> int:
    args = parse_arguments()
    if args.arch not in RECIPES:
        return refuse(f"--arch {args.arch}: the demo has recipes for {', '.join(RECIPES)}")
    if args.max_update is not None and args.max_update < 1:
        return refuse(f"--max-update {args.max_update}: at least 1 is needed")
    try:
        run(args)
    except StepFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train and score a small English-German model.")
    parser.add_argument("--arch", default="luna_tiny", help=f"one of {', '.join(RECIPES)}")
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where everything is kept")
    parser.add_argument("--max-update", type=int, help="stop earlier (or later) than the recipe does")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def refuse(problem: str) -> int:
    print(f"demo.py: {problem}", file=sys.stderr)
    return 2


def run(args: argparse.Namespace) -> None:
    folder: Path = args.folder
    recipe = RECIPES[args.arch]
    recipe = recipe._replace(max_update=args.max_update or recipe.max_update)
    texts, model, data = folder / "corpus", folder / "sentencepiece", folder / "data-bin"
    # Another seed or length is another training, with a checkpoint of its own.
    trained = folder / f"{args.arch}-{recipe.max_update}-updates-seed-{args.seed}"
    checkpoint = trained / "checkpoint_last.pt"

    once("corpus", texts, corpus.write)
    once("SentencePiece model", model, lambda target: demo_steps.learn_pieces(texts, target))
    once("data", data, lambda target: demo_steps.binarise(texts, model / "joint.model", target))
    once("training", trained / "finished", lambda mark: train(data, trained, recipe, args.seed, mark))
    generated = trained / "test.generated"
    once("translations", generated, lambda target: demo_steps.translate(data, checkpoint, target))
    report(texts, generated)
    print(f"checkpoint: {checkpoint}")
    print("a sentence of your own:")
    print(f"  {interactive_command(data, model / 'joint.model', checkpoint)}")


def train(data: Path, folder: Path, recipe: demo_steps.Recipe, seed: int, finished: Path) -> None:
    demo_steps.train(data, folder, recipe, seed)
    finished.touch()


def report(texts: Path, generated: Path) -> None:
    sources, references = (
        (texts / f"test.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")
    )
    translated = demo_score.hypotheses(generated)
    result = demo_score.score(translated, references)
    print("\n" + "\n".join(demo_score.examples(sources, references, translated, _EXAMPLES)))
    print(f"sacreBLEU {result.bleu:.2f} on {len(references)} held-out sentences, {result.exact} of them exact")
    print(f"signature {result.signature}")
    print(f"translated at {demo_score.tokens_per_second(generated)} tokens a second")


def interactive_command(data: Path, model: Path, checkpoint: Path) -> str:
    """What to paste into a shell in this folder."""
    program = Path(sys.executable).with_name("fairseq-interactive")
    arguments = [program, data, "--user-dir", USER_DIR, "--path", checkpoint, "--beam", "4"]
    arguments += ["--bpe", "sentencepiece", "--sentencepiece-model", model]
    shown = shlex.join(shortest(part) if isinstance(part, Path) else part for part in arguments)
    return f"echo 'The old teacher calls me on Monday.' | {shown}"


def shortest(path: Path) -> str:
    """Relative to the current folder where the path is inside it."""
    absolute = Path(os.path.abspath(path))
    here = Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


if __name__ == "__main__":
    sys.exit(main())

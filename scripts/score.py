"""Score what fairseq-generate wrote against the untouched reference: sacreBLEU, chrF, tokenised BLEU, compounds split.

    python scripts/score.py generate-test.txt --reference wmt14/reference/test.de
    python scripts/score.py luna.txt --other block.txt --baseline transformer.txt --reference test.de

Several files in one place are shards of one system. D- lines are read, which are the text where fairseq-generate was
given --bpe and --tokenizer, and the same as H- lines where it was not; pieces that are left are joined. Text that was
tokenised by Moses before training needs --tokenised-by moses: its H- lines are then detokenised, for all scores.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scoring import paired, pieces
from scoring.generated import read_both, read_generated
from scoring.measures import Measure, Scores, check_counts, score
from scoring.paired import Compared, paired_bootstrap
from scoring.problem import CommandError, lines_of
from scoring.report import lines_of_comparison, lines_of_scores, write_json
from scoring.tokens import detokenise, language_of

__all__ = ["Measure", "Scores", "main", "paired_bootstrap", "read_generated", "score"]

_MOSES, _NONE = "moses", "none"


class System(NamedTuple):
    """``text`` is what a reader gets, ``tokens`` what the model wrote, pieces joined."""

    name: str
    text: list[str]
    tokens: list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        check(args)
        run(args)
    except (CommandError, OSError) as problem:
        print(f"score.py: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nscore.py: stopped", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("generated", nargs="+", type=Path, metavar="FILE", help="fairseq-generate's output; its shards")
    made.add_argument("--reference", type=Path, required=True, help="the untouched reference, one sentence a line")
    made.add_argument("--baseline", nargs="+", type=Path, metavar="FILE", help="compare with this system's output")
    made.add_argument(
        "--other", nargs="+", type=Path, action="append", default=[], metavar="FILE", help="a further system's output"
    )
    made.add_argument("--remove-bpe", choices=pieces.CHOICES, default=pieces.AUTO, help="what pieces are left")
    made.add_argument("--tokenised-by", choices=(_MOSES, _NONE), default=_NONE, help="detokenise the hypotheses")
    made.add_argument("--tokenize", choices=(_MOSES, _NONE), help="for tokenised BLEU (moses); none: as it stands")
    made.add_argument("--tokenised-reference", type=Path, help="score the model's own tokens against this file")
    made.add_argument("--language", metavar="LANG", help="for Moses (the ending of --reference)")
    made.add_argument("--lowercase", action="store_true", help="score lower-cased text")
    made.add_argument("--paired-bs", type=positive, metavar="N", help=f"tests of the bootstrap ({paired.SAMPLES})")
    made.add_argument("--seed", type=positive, help=f"of the bootstrap ({paired.SEED})")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything there, too")
    return made


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1 is needed")
    return number


def check(args: argparse.Namespace) -> None:
    """Raises CommandError for flags that do not go together, before anything is read."""
    if not args.baseline and (args.paired_bs or args.seed):
        raise CommandError("--paired-bs and --seed: give a --baseline to compare with")
    if args.tokenised_reference and args.tokenize == _MOSES:
        raise CommandError("--tokenised-reference: leave out --tokenize moses, it is tokenised already")
    inputs = [
        args.reference,
        *args.generated,
        *(args.baseline or []),
        *(file for files in args.other for file in files),
    ]
    if args.tokenised_reference:
        inputs.append(args.tokenised_reference)
    if args.json and args.json.exists() and any(file.exists() and args.json.samefile(file) for file in inputs):
        raise CommandError(f"--json {args.json}: that is an input; give another name")
    if args.json and not args.json.absolute().parent.is_dir():
        raise CommandError(f"--json {args.json}: there is no folder {args.json.parent}")


def run(args: argparse.Namespace) -> None:
    references = lines_of(args.reference)
    as_it_stands = args.tokenize == _NONE or args.tokenised_reference is not None
    language = args.language
    if language is None and (args.tokenised_by == _MOSES or not as_it_stands):
        language = language_of(args.reference)
    groups = [args.baseline] if args.baseline else []
    systems = [read(shards, args, language) for shards in (*groups, args.generated, *args.other)]
    names = [system.name for system in systems]
    if len(set(names)) < len(names):
        raise CommandError(f"{max(names, key=names.count)} is given as two systems")
    reference_tokens = lines_of(args.tokenised_reference) if args.tokenised_reference else references
    for system in systems:
        check_against(system, references, args.reference)
        check_against(system, reference_tokens, args.tokenised_reference or args.reference)
    scores = {}
    for system in systems:
        tokens = (system.tokens, reference_tokens) if as_it_stands else None
        scores[system.name] = score(system.text, references, language=language, tokens=tokens, lowercase=args.lowercase)
        print("\n".join(lines_of_scores(system.name, scores[system.name])), flush=True)
    compared: list[Compared] = []
    if args.baseline:
        compared = paired_bootstrap(
            {system.name: system.text for system in systems},
            references,
            samples=args.paired_bs or paired.SAMPLES,
            seed=args.seed or paired.SEED,
            lowercase=args.lowercase,
        )
        print("\n".join(lines_of_comparison(compared)))
    if args.json:
        write_json(args.json, args.reference, scores, compared)


def read(shards: Sequence[Path], args: argparse.Namespace, language: str | None) -> System:
    """One system's output, which shares its first file's name."""
    tokens, text = read_both(shards, args.remove_bpe)
    if args.tokenised_by == _MOSES:
        # Not the D- lines: fairseq-generate may have detokenised those, and nothing in them says so.
        text = detokenise(tokens, language or "")
    elif looks_tokenised(text):
        print(
            f"score.py: warning: {shards[0]} looks tokenised; with --tokenised-by moses it is detokenised first",
            file=sys.stderr,
        )
    return System(str(shards[0]), text, tokens)


def looks_tokenised(text: Sequence[str]) -> bool:
    """Whether most full stops at the end of a sentence stand apart."""
    return 2 * sum(line.endswith(" .") for line in text) > sum(line.endswith(".") for line in text)


def check_against(system: System, references: Sequence[str], file: Path) -> None:
    """Raises CommandError, naming both files, unless every reference has its translation."""
    try:
        check_counts(len(system.text), len(references))
    except CommandError as problem:
        raise CommandError(f"{system.name} against {file}: {problem}") from problem


if __name__ == "__main__":
    sys.exit(main())

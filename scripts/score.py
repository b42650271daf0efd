"""Score fairseq-generate's output against the untouched reference: sacreBLEU, chrF, tokenised and compound-split BLEU.

    python scripts/score.py generate-test.txt --reference wmt14/reference/test.de
    python -m fairseq_luna translate MODEL < test.en > test.out; python scripts/score.py test.out --reference test.de
    python scripts/score.py luna.txt --other block.txt --baseline transformer.txt --reference test.de

    python scripts/score.py generate-test.txt --reference reference/test.de --documents reference/test.documents

Several files after one flag are shards of one system. D- lines are scored: they are the text if fairseq-generate had
--bpe and --tokenizer, and equal to the H- lines otherwise; remaining pieces are joined. Text that Moses tokenised
before training needs --tokenised-by moses: its H- lines are then detokenised, for all scores. A file without any of
these lines is text, one translation a line.

With --documents a score is of whole documents (d-BLEU), and a table has it by source. Beside it stands sacreBLEU by
segment, of the lines where the translation has as many separators as the reference. Where a source has a single
document, such as captions, each line counts as one. --sources scores the documents of these sources only, together.

With --rouge the text is summaries, and the scores are ROUGE-1, -2 and -L (pip install 'fairseq-luna[rouge]').
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_luna.commands.command_line import CommandError, Parser, command, positive
from scoring import doubts, paired, pieces
from scoring.documents import BySource, by_source, lines_of, read_labels, whole
from scoring.generated import read_both
from scoring.measures import Scores, check_counts, score
from scoring.paired import Compared, paired_bootstrap
from scoring.report import lines_of_comparison, lines_of_documents, lines_of_scores, write_json
from scoring.rouge import RougeScores, rouge
from scoring.tokens import detokenise, ending, language_of
from shared.text_files import read_lines

_MOSES, _NONE = "moses", "none"


class System(NamedTuple):
    """``text`` is detokenised, ``tokens`` are the model's, with pieces joined; ``plain`` is Generated's."""

    name: str
    text: list[str]
    tokens: list[str]
    plain: bool = False


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("generated", nargs="+", type=Path, metavar="FILE", help="fairseq-generate's output, its shards, or text")
    add("--reference", type=Path, help="the untouched reference, one sentence a line (required)")
    add("--baseline", nargs="+", type=Path, metavar="FILE", help="compare with this system's output")
    add("--other", nargs="+", type=Path, action="append", default=[], metavar="FILE", help="another system's output")
    add("--remove-bpe", choices=pieces.CHOICES, default=pieces.AUTO, help="the kind of remaining pieces")
    add("--tokenised-by", choices=(_MOSES, _NONE), default=_NONE, help="detokenise the hypotheses")
    add("--tokenize", choices=(_MOSES, _NONE), help="for tokenised BLEU; none: split at spaces")
    add("--tokenised-reference", type=Path, help="score the model's tokens against this file")
    add("--documents", type=Path, metavar="FILE", help="the document of each line, by scripts/prepare_documents.py")
    add("--sources", nargs="+", metavar="NAME", help="score the documents of these sources only")
    add("--rouge", action="store_true", help="score summaries, with ROUGE only")
    add("--language", metavar="LANG", help="of Moses and sacreBLEU (default: the ending of --reference)")
    add("--lowercase", action="store_true", help="score lower-cased text")
    add("--paired-bs", type=positive, metavar="N", help=f"tests of the bootstrap (default: {paired.SAMPLES})")
    add("--seed", type=positive, help=f"of the bootstrap (default: {paired.SEED})")
    add("--json", type=Path, metavar="FILE", help="also write all scores to this file")
    args = parser.parse_args(arguments)
    check(args)
    run(args)


def check(args: Namespace) -> None:
    """Raises CommandError for flags that are missing or contradict each other, before anything is read."""
    if not args.reference:
        raise CommandError(
            "--reference FILE is missing: the true translations, untouched, one a line, such as reference/test.de, "
            "which scripts/prepare_*.py leave beside bin"
        )
    if not args.baseline and (args.paired_bs or args.seed):
        raise CommandError("--paired-bs and --seed: give a --baseline to compare with")
    if args.tokenised_reference and args.tokenize == _MOSES:
        raise CommandError("--tokenised-reference: is tokenised already; leave out --tokenize moses")
    if args.documents and (args.tokenised_reference or args.tokenised_by == _MOSES):
        raise CommandError("--documents: is for text of SentencePiece; leave out the flags of tokenised text")
    if args.sources and not args.documents:
        raise CommandError("--sources: needs --documents, which names the source of each line")
    if args.rouge and any((args.documents, args.baseline, args.tokenize, args.tokenised_reference, args.lowercase)):
        raise CommandError("--rouge: leave out --documents, --baseline, --lowercase and the flags of tokenised BLEU")
    inputs = [
        args.reference,
        *args.generated,
        *(args.baseline or []),
        *(file for files in args.other for file in files),
    ]
    inputs += filter(None, (args.tokenised_reference, args.documents))
    if args.json and args.json.exists() and any(file.exists() and args.json.samefile(file) for file in inputs):
        raise CommandError(f"--json {args.json}: that is an input; give another name")
    if args.json and not args.json.absolute().parent.is_dir():
        raise CommandError(f"--json {args.json}: there is no folder {args.json.parent}")


def run(args: Namespace) -> None:
    references = list(read_lines(args.reference))
    as_it_stands = args.tokenize == _NONE or args.tokenised_reference is not None or args.rouge
    language = args.language
    if language is None and (args.tokenised_by == _MOSES or not as_it_stands):
        language = language_of(args.reference)
    reference_tokens = list(read_lines(args.tokenised_reference)) if args.tokenised_reference else references
    systems = read_systems(args, language)
    for system in systems:
        check_against(system, references, args.reference)
        check_against(system, reference_tokens, args.tokenised_reference or args.reference)
    target = sacrebleu_language(args)
    documents: dict[str, list[BySource]] = {}
    if args.documents:
        labels = read_labels(args.documents, len(references))
        if args.sources:
            places = lines_of(args.sources, labels)
            labels, references = at(places, labels), at(places, references)
            systems = [System(name, at(places, text), at(places, tokens)) for name, text, tokens, _ in systems]
        for system in systems:
            documents[system.name] = by_source(system.text, references, labels, target=target, lowercase=args.lowercase)
        systems = [System(name, whole(text, labels), whole(tokens, labels)) for name, text, tokens, _ in systems]
        references = reference_tokens = whole(references, labels)
    unit = unit_of(args)
    if args.baseline and len(references) < 2:
        raise CommandError(f"--baseline: the bootstrap draws from at least 2 {unit}, but there is {len(references)}")
    scores: dict[str, Scores | RougeScores] = {}
    for system in systems:
        if args.rouge:
            scores[system.name] = rouge(system.text, references)
        else:
            tokens = (system.tokens, reference_tokens) if as_it_stands else None
            scores[system.name] = found = score(
                *(system.text, references), target=target, language=language, tokens=tokens, lowercase=args.lowercase
            )
            warn(doubts.another_reference(system.name, args.reference, found.bleu.matched or 0))
        lines = lines_of_scores(system.name, scores[system.name], unit)
        if args.documents:
            lines += lines_of_documents(documents[system.name])
        print("\n".join(lines), flush=True)
    compared: list[Compared] = []
    if args.baseline:
        compared = paired_bootstrap(
            {system.name: system.text for system in systems},
            references,
            samples=args.paired_bs or paired.SAMPLES,
            seed=args.seed or paired.SEED,
            target=target,
            lowercase=args.lowercase,
        )
        print("\n".join(lines_of_comparison(compared)))
    if args.json:
        write_json(args.json, args.reference, scores, documents, compared)


def sacrebleu_language(args: Namespace) -> str | None:
    """The language of --language or of the reference's ending, if sacreBLEU has a tokenizer for it."""
    return next((name for name in (args.language, ending(args.reference)) if name in ("zh", "ja", "ko")), None)


def unit_of(args: Namespace) -> str:
    """What is scored as one text."""
    of_sources = f" of {', '.join(args.sources)}" if args.sources else ""
    return "summaries" if args.rouge else f"documents{of_sources}" if args.documents else "sentences"


def at(places: Sequence[int], lines: Sequence[str]) -> list[str]:
    return [lines[place] for place in places]


def read_systems(args: Namespace, language: str | None) -> list[System]:
    """All systems, the baseline first; CommandError if one is given twice."""
    groups = [args.baseline] if args.baseline else []
    systems = [read(shards, args, language) for shards in (*groups, args.generated, *args.other)]
    names = [system.name for system in systems]
    if len(set(names)) < len(names):
        raise CommandError(f"{max(names, key=names.count)} is given as two systems")
    return systems


def read(shards: Sequence[Path], args: Namespace, language: str | None) -> System:
    """One system's output, named after its first file."""
    tokens, text, plain = read_both(shards, args.remove_bpe)
    if args.tokenised_by == _MOSES:
        # Not the D- lines: fairseq-generate may have detokenised those, which cannot be seen from them.
        text = detokenise(tokens, language or "")
    else:
        warn(doubts.tokenised(shards[0], text))
    return System(str(shards[0]), text, tokens, plain)


def warn(doubt: str | None) -> None:
    if doubt:
        print(f"score.py: warning: {doubt}", file=sys.stderr)


def check_against(system: System, references: Sequence[str], file: Path) -> None:
    """Raises CommandError, naming both files, unless every reference has a translation."""
    try:
        check_counts(len(system.text), len(references))
    except CommandError as problem:
        hint = "; it has no H- or D- lines of fairseq-generate, so each line is a translation" if system.plain else ""
        raise CommandError(f"{system.name} against {file}: {problem}{hint}") from problem


if __name__ == "__main__":
    sys.exit(main())

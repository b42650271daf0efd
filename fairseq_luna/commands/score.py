"""Score translations against a reference: sacreBLEU and chrF, with sacreBLEU's signature.

    fairseq-luna score translations.de --reference data/reference/test.de --confidence
    fairseq-luna score generate-test.txt --reference data/reference/test.de
    fairseq-luna score luna.de --paired transformer.de --reference data/reference/test.de

HYPOTHESES are what fairseq-luna translate or fairseq-generate wrote; several files are parts of one system. The
reference is untouched text, a line for each translation. D- lines of fairseq-generate are scored, or its H- lines, and
remaining pieces are joined. Its T- lines say which test it is of: another reference is refused.

--confidence draws the test again and again, with sacreBLEU's bootstrap, and says between which scores 95 % of the draws
lie. --paired compares with another system on the same draws; p is the probability of so large a difference by chance.
Both know one training of each system: another seed may differ by more.

With --documents a score is of whole documents (d-BLEU), and a table has it by source. Beside it stands sacreBLEU by
segment, of the lines where the translation has as many separators as the reference. Where a source has a single
document, such as captions, each line counts as one. --sources scores the documents of these sources only, together.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..usage_error import UsageError, flag
from .command_line import positive
from .output import check_output
from .progress import working
from .scoring import SAMPLES, SEED
from .scoring.pieces import AUTO, CHOICES
from .steps import shell, show_next
from .text_files import ending, read_lines

if TYPE_CHECKING:
    from .scoring.documents import BySource
    from .scoring.generated import Generated
    from .scoring.measures import Scores


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("hypotheses", nargs="+", type=Path, metavar="HYPOTHESES", help="translations")
    add("--reference", type=Path, metavar="FILE", help="the true translations, untouched (required)")
    add("--confidence", action="store_true", help="show the 95 %% confidence interval of each score")
    add("--paired", nargs="+", type=Path, metavar="FILE", help="compare with another system's translations")
    add("--samples", type=positive, metavar="N", help=f"tests that --confidence and --paired draw (default: {SAMPLES})")
    add("--seed", type=positive, metavar="N", help=f"of the draws (default: {SEED})")
    add("--documents", type=Path, metavar="FILE", help="document of each line: its source, a tab, its number there")
    add("--sources", nargs="+", metavar="NAME", help="score the documents of these sources only")
    add(
        "--language",
        metavar="LANG",
        help="target language, for Chinese, Japanese, Korean (default: --reference's ending)",
    )
    add("--lowercase", action="store_true", help="score lower-cased text")
    add("--remove-bpe", choices=CHOICES, default=AUTO, help="remaining pieces")
    add("--json", type=Path, metavar="FILE", help="also write all scores to this file")


def check(args: Namespace) -> None:
    """Raises UsageError for flags that are missing or contradict each other, before anything is read."""
    if not args.reference:
        raise UsageError(
            "--reference FILE is missing: the true translations, untouched, one a line, such as reference/test.de, "
            "which fairseq-luna prepare leaves beside bin"
        )
    if (args.samples or args.seed) and not (args.confidence or args.paired):
        raise UsageError("--samples and --seed: give --confidence, or --paired with a system to compare with")
    if args.samples == 1:
        raise UsageError("--samples 1: must be 2 or more")
    if args.sources and not args.documents:
        raise UsageError("--sources: needs --documents, which names the source of each line")
    if args.json:
        inputs = [*args.hypotheses, *(args.paired or []), *filter(None, (args.reference, args.documents))]
        check_output(args.json, inputs, force=True, flag="--json")


def run(args: Namespace) -> None:
    check(args)
    from .scoring.paired import paired_bootstrap
    from .scoring.report import lines_of_comparison, write_json

    references = list(read_lines(args.reference))
    systems = read_systems(args)
    for name, system in systems.items():
        check_against(name, system, references, args.reference)
    common: dict[str, Any] = {"target": sacrebleu_language(args), "lowercase": args.lowercase}
    texts, references, by_source = scored_texts(args, systems, references, **common)
    unit = "documents" if args.documents else "sentences"
    unit += f" of {', '.join(args.sources)}" if args.sources else ""
    if (args.paired or args.confidence) and len(references) < 2:
        raise UsageError(f"the bootstrap draws from at least 2 {unit}, but there is {len(references)}")
    bootstrap: dict[str, Any] = {"samples": args.samples or SAMPLES, "seed": args.seed or SEED}
    scores = scores_of(args, texts, references, unit, by_source, common | (bootstrap if args.confidence else {}))
    compared = []
    if args.paired:
        with working(f"drawing {bootstrap['samples']:,} tests for the comparison"):
            compared = paired_bootstrap(texts, references, **common, **bootstrap)
        print("\n".join(lines_of_comparison(compared)))
    if args.json:
        write_json(args.json, args.reference, scores, by_source, compared)
    inputs = [*args.hypotheses, *filter(None, (args.reference, args.documents))]
    if all(file.is_file() for file in inputs) and not (args.confidence or args.paired or len(references) < 2):
        show_next("how sure these scores are", shell("fairseq-luna", "score", *same_scores(args), "--confidence"))


def same_scores(args: Namespace) -> list[object]:
    """The arguments that say what is scored, and how."""
    words = [*args.hypotheses, "--reference", args.reference, *(["--lowercase"] if args.lowercase else [])]
    for name in ("documents", "language", "remove_bpe"):
        if (value := getattr(args, name)) not in (None, AUTO):
            words += [flag(name), value]
    return words + (["--sources", *args.sources] if args.sources else [])


def scored_texts(
    args: Namespace, systems: Mapping[str, "Generated"], references: list[str], **common: Any
) -> tuple[dict[str, list[str]], list[str], dict[str, Sequence["BySource"]]]:
    """The texts to score, of each system and of the reference, sentences or documents; and scores by source."""
    texts = {name: system.text for name, system in systems.items()}
    if not args.documents:
        return texts, references, {}
    from .scoring import documents

    labels = documents.read_labels(args.documents, len(references))
    places = documents.lines_of(args.sources, labels) if args.sources else range(len(labels))
    labels, references = at(places, labels), at(places, references)
    texts = {name: at(places, text) for name, text in texts.items()}
    rows: dict[str, Sequence[BySource]] = {
        name: documents.by_source(text, references, labels, **common) for name, text in texts.items()
    }
    whole = {name: documents.whole(text, labels) for name, text in texts.items()}
    return whole, documents.whole(references, labels), rows


def scores_of(
    args: Namespace,
    texts: Mapping[str, Sequence[str]],
    references: Sequence[str],
    unit: str,
    by_source: Mapping[str, Sequence["BySource"]],
    options: Mapping[str, Any],
) -> dict[str, "Scores"]:
    """Score each of ``texts``, and print its scores."""
    from .scoring import doubts
    from .scoring.measures import score
    from .scoring.report import lines_of_documents, lines_of_scores

    scores = {}
    for name, text in texts.items():
        drawing = working(f"drawing {options['samples']:,} tests for {name}") if args.confidence else nullcontext()
        with drawing:
            scores[name] = score(text, references, **options)
        warn(doubts.tokenised(name, text))
        warn(doubts.another_reference(name, args.reference, scores[name].bleu.matched or 0))
        lines = lines_of_scores(name, scores[name], unit)
        print("\n".join(lines + (lines_of_documents(by_source[name]) if by_source else [])), flush=True)
    return scores


def sacrebleu_language(args: Namespace) -> str | None:
    """The language of --language or of the reference's ending, if sacreBLEU has a tokenizer for it."""
    return next((name for name in (args.language, ending(args.reference)) if name in ("zh", "ja", "ko")), None)


def at(places: Sequence[int], lines: Sequence[str]) -> list[str]:
    return [lines[place] for place in places]


def read_systems(args: Namespace) -> dict[str, "Generated"]:
    """All systems by their first files, that of --paired first; UsageError if one is given twice."""
    from .scoring.generated import read_translations

    if args.paired and args.paired[0] == args.hypotheses[0]:
        raise UsageError(f"{args.paired[0]} is given as two systems")
    both = filter(None, (args.paired, args.hypotheses))
    return {str(shards[0]): read_translations(shards, args.remove_bpe) for shards in both}


def warn(doubt: str | None) -> None:
    if doubt:
        print(f"fairseq-luna score: warning: {doubt}", file=sys.stderr)


def check_against(name: str, system: "Generated", references: Sequence[str], file: Path) -> None:
    """Raises UsageError, naming both files, unless every reference has a translation and is of the same test."""
    from .scoring.doubts import another_test
    from .scoring.measures import check_counts

    try:
        check_counts(len(system.text), len(references))
    except UsageError as problem:
        hint = "; it has no H- or D- lines of fairseq-generate, so each line is a translation" if system.plain else ""
        raise UsageError(f"{name} against {file}: {problem}{hint}") from problem
    warn(another_test(name, system.targets, file, references))

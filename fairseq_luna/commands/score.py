"""Score translations against references: sacreBLEU, chrF2 and TER, with sacreBLEU's signatures.

    fairseq-luna score translations.de --reference data/reference/test.de --confidence
    fairseq-luna score generate-test.txt --reference data/reference/test.de
    fairseq-luna score luna.de --paired transformer.de --reference data/reference/test.de
    fairseq-luna score one.zh two.zh --reference first.zh_CN second.zh_CN --ter

HYPOTHESES are files that fairseq-luna translate or fairseq-generate wrote. Several files are several systems if each
has all sentences, and otherwise parts of one system. --reference is untouched text with one line for each translation;
several files are alternative references. In the output of fairseq-generate the D- lines are scored, or else the H-
lines, and remaining subword pieces are joined. Its T- lines say which test it belongs to: a reference of another test
is refused.

BLEU counts words, which Chinese, Japanese, Thai and other languages do not separate by spaces. The first line of the
output says which tokenizer of sacreBLEU is used, and why: the one for --language, for the language in the name of the
reference, such as test.zh, or for the letters of its text. chrF2 counts characters. --ter adds TER, for which lower is
better.

--confidence resamples the test with sacreBLEU's bootstrap and prints the interval that contains 95 % of the scores.
--paired compares the systems with another system on the same samples; p is the probability of a difference as large by
chance. With several files after it, or given several times, it makes several comparisons. These tests know one training
of each system: training again with another seed may change the score by more.

--documents scores whole documents (d-BLEU) and prints a table by source. The table also has sacreBLEU by segment, of
the lines in which the translation has as many separators as the reference. If a source has a single document, such as
captions, each of its lines counts as a document. --sources limits the score to the documents of these sources.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command_line import positive
from ..files import check_output
from ..progress import show_elapsed_time
from ..subwords import is_blank
from ..text_files import read_lines
from ..usage_error import UsageError, flag
from .scoring import SAMPLES, SEED, TOKENIZERS
from .scoring.system_output import AUTO, CHOICES, SystemOutput, marker_in, read_systems
from .shell_commands import shell, show_next

if TYPE_CHECKING:
    from .scoring.documents import SourceScores
    from .scoring.metrics import ComparedScore, Scores, ScoringOptions

References = dict[Path, list[str]]  # the lines of each file


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+", "type": Path, "metavar": "FILE"}
    # argparse would show --reference in brackets: run checks it, with a message that explains it.
    parser.usage = "%(prog)s HYPOTHESES [HYPOTHESES ...] --reference FILE [FILE ...] [options]"
    add("hypotheses", nargs="*", type=Path, metavar="HYPOTHESES", help="translations to score")
    add("--reference", **several, action="append", help="untouched reference translation, or several (required)")
    add("--ter", action="store_true", help="compute TER too")
    add("--confidence", action="store_true", help="print the 95 %% confidence interval of each score")
    add("--paired", **several, action="append", help="translations of systems to compare with")
    add("--samples", type=positive, metavar="N", help=f"samples of --confidence and --paired (default: {SAMPLES})")
    add("--seed", type=positive, metavar="N", help=f"random seed of the samples (default: {SEED})")
    what = "file with the document of each line: its source, a tab, and its number in the source"
    add("--documents", type=Path, metavar="FILE", help=what)
    add("--sources", nargs="+", action="extend", metavar="NAME", help="score only the documents of these sources")
    add("--language", metavar="LANG", help="target language, such as de, zh_CN, jpn or zho_Hans, for the tokenizer")
    add("--tokenize", choices=TOKENIZERS, help="tokenizer of BLEU, instead of the tokenizer for the language")
    add("--lowercase", action="store_true", help="score lower-cased text")
    add("--remove-bpe", choices=CHOICES, default=AUTO, help="kind of subword pieces to join (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all scores to this file too")


def split_files(args: Namespace) -> tuple[list[Path], list[Path]]:
    """The files of translations, and of references. Of two files after --reference, the second may be the translation.

    Raises:
        UsageError: one of them is missing.
    """
    if not args.reference:
        raise UsageError(
            "--reference FILE is missing: the untouched reference translation, one line per sentence, such as "
            "reference/test.de in the folder of fairseq-luna prepare"
        )
    *others, last = args.reference
    if not args.hypotheses and len(last) == 2:
        return last[1:], [*chain(*others), last[0]]
    if not args.hypotheses:
        raise UsageError(
            "the translations are missing: give HYPOTHESES first, before the flags that take several files"
        )
    return args.hypotheses, [*chain(*args.reference)]


def check_arguments(args: Namespace) -> None:
    """Raises UsageError for flags that contradict each other."""
    if args.language is not None and args.tokenize:
        raise UsageError(f"--language {args.language} --tokenize {args.tokenize}: both name the tokenizer; give one")
    if len(set(map(Path.resolve, args.reference))) < len(args.reference):
        raise UsageError(f"--reference {' '.join(map(str, args.reference))}: a file is given twice; give it once")
    if (args.samples or args.seed) and not (args.confidence or args.paired):
        raise UsageError("--samples and --seed: give --confidence, or --paired with a system to compare with")
    if args.samples == 1:
        raise UsageError("--samples 1: must be 2 or more")
    if args.sources and not args.documents:
        raise UsageError("--sources: needs --documents, which names the source of each line")
    if args.json:
        inputs = [*args.hypotheses, *chain(*args.paired or []), *args.reference, *filter(None, [args.documents])]
        check_output(args.json, inputs, force=True, flag="--json")


def run(args: Namespace) -> None:
    args.hypotheses, args.reference = split_files(args)
    check_arguments(args)
    try:
        from .scoring.metrics import ScoringOptions
        from .scoring.report import write_json
        from .scoring.tokenizer import check_language, choose_tokenizer
    except ModuleNotFoundError as error:  # a dependency is missing after an update of this package
        raise UsageError(f"{error.name} is not installed: pip install {error.name}") from error
    if args.language is not None:
        check_language(args.language)
    references = {file: list(read_lines(file)) for file in args.reference}
    check_references(references)
    paired = read_systems(args.paired or [], [*references.values()], args.remove_bpe)
    systems = read_systems([args.hypotheses], [*references.values()], args.remove_bpe, paired)
    for name, system in (paired | systems).items():
        check_against(name, system, references)
    chosen = choose_tokenizer(references, language=args.language, tokenizer=args.tokenize)
    options = ScoringOptions(chosen.name, args.lowercase, args.ter, chosen.asian)
    texts, references, by_source = scored_texts(args, paired | systems, references, options)
    sentences = len(references[args.reference[0]])
    unit = "documents" if args.documents else "sentences"
    unit += f" of {', '.join(args.sources)}" if args.sources else ""
    if (args.paired or args.confidence) and sentences < 2:
        raise UsageError(f"the bootstrap draws from at least 2 {unit}, but there is {sentences}")
    print(f"tokenizer {chosen.name}: {chosen.reason}")
    warn(chosen.doubt)
    warn(chosen.ter_doubt if args.ter else None)
    scores = print_scores(args, texts, references, unit, by_source, options)
    compared = print_comparisons(args, texts, [*paired], references, options)
    if args.json:
        write_json(args.json, args.reference, chosen.name, scores, by_source, compared)
    inputs = [*args.hypotheses, *args.reference, *([args.documents] if args.documents else [])]
    if all(file.is_file() for file in inputs) and not (args.confidence or args.paired or sentences < 2):
        show_next("how sure these scores are", shell("fairseq-luna", "score", *same_scores(args), "--confidence"))


def bootstrap_options(args: Namespace) -> dict[str, int]:
    return {"samples": args.samples or SAMPLES, "seed": args.seed or SEED}


def print_comparisons(
    args: Namespace,
    texts: Mapping[str, Sequence[str]],
    baselines: Sequence[str],
    references: References,
    options: "ScoringOptions",
) -> list["ComparedScore"]:
    """Compare the other ``texts`` with each of the ``baselines``, and print the tables."""
    from .scoring.metrics import paired_bootstrap
    from .scoring.report import lines_of_comparison

    compared: list[ComparedScore] = []
    others = {name: text for name, text in texts.items() if name not in baselines}
    for baseline in baselines:
        systems = {baseline: texts[baseline], **others}
        with show_elapsed_time(
            f"drawing {bootstrap_options(args)['samples']:,} tests for the comparison with {baseline}"
        ):
            comparisons = paired_bootstrap(systems, [*references.values()], options, **bootstrap_options(args))
        print("\n".join(lines_of_comparison(comparisons)))
        compared += comparisons
    return compared


def same_scores(args: Namespace) -> list[object]:
    """The arguments for the same scores: files, and how they are scored."""
    words: list[object] = [*args.hypotheses, "--reference", *args.reference]
    words += [flag(name) for name in ("lowercase", "ter") if getattr(args, name)]
    for name in ("documents", "language", "tokenize", "remove_bpe"):
        if (value := getattr(args, name)) not in (None, AUTO):
            words += [flag(name), value]
    return words + (["--sources", *args.sources] if args.sources else [])


def scored_texts(
    args: Namespace, systems: Mapping[str, SystemOutput], references: References, options: "ScoringOptions"
) -> tuple[dict[str, list[str]], References, dict[str, Sequence["SourceScores"]]]:
    """The texts of each system and reference, as sentences or documents, and the scores by source."""
    texts = {name: system.text for name, system in systems.items()}
    if not args.documents:
        return texts, references, {}
    from .scoring import documents
    from .scoring.documents import join_documents, select

    labels = documents.read_labels(args.documents, len(references[args.reference[0]]))
    places = documents.lines_of_sources(args.sources, labels) if args.sources else range(len(labels))
    labels, references = select(places, labels), {file: select(places, lines) for file, lines in references.items()}
    texts = {name: select(places, text) for name, text in texts.items()}
    rows: dict[str, Sequence[SourceScores]] = {
        name: documents.scores_by_source(text, [*references.values()], labels, options) for name, text in texts.items()
    }
    documents_of = {name: join_documents(text, labels) for name, text in texts.items()}
    return documents_of, {file: join_documents(lines, labels) for file, lines in references.items()}, rows


def print_scores(
    args: Namespace,
    texts: Mapping[str, Sequence[str]],
    references: References,
    unit: str,
    by_source: Mapping[str, Sequence["SourceScores"]],
    options: "ScoringOptions",
) -> dict[str, "Scores"]:
    """Score each of ``texts``, and print the scores."""
    from .scoring import sanity_checks
    from .scoring.metrics import score
    from .scoring.report import lines_of_documents, lines_of_scores

    scores = {}
    for name, text in texts.items():
        drawing = (
            show_elapsed_time(f"drawing {bootstrap_options(args)['samples']:,} tests for {name}")
            if args.confidence
            else nullcontext()
        )
        with drawing:
            scores[name] = score(
                text, [*references.values()], options, **(bootstrap_options(args) if args.confidence else {})
            )
        warn(sanity_checks.tokenized_warning(name, text))
        warn(sanity_checks.wrong_reference_warning(name, args.reference, scores[name].bleu.matched or 0))
        lines = lines_of_scores(name, scores[name], unit)
        print("\n".join(lines + (lines_of_documents(by_source[name]) if by_source else [])), flush=True)
    return scores


def warn(doubt: str | None) -> None:
    if doubt:
        print(f"fairseq-luna score: warning: {doubt}", file=sys.stderr)


def check_references(references: References) -> None:
    """Raises UsageError unless all references have text, and as many lines. Warn of subword pieces."""
    for file, lines in references.items():
        if all(map(is_blank, lines)):
            raise UsageError(f"--reference {file}: has no text")
        if marker := marker_in(lines):
            warn(
                f"{file} looks like subword pieces ({marker}), which a reference should not be: give the untouched "
                "text; BLEU of pieces is not comparable"
            )
    (first, lines), *others = references.items()
    for file, other in others:
        if len(other) != len(lines):
            raise UsageError(
                f"--reference: {first} has {len(lines):,} lines, but {file} has {len(other):,}; "
                "give references of the same sentences"
            )


def check_against(name: str, system: SystemOutput, references: References) -> None:
    """Raises UsageError, naming both files, unless every reference has a translation and is of the same test."""
    from .scoring.metrics import check_counts
    from .scoring.sanity_checks import check_test

    file, lines = next(iter(references.items()))
    try:
        check_counts(len(system.text), len(lines))
    except UsageError as problem:
        hint = "; it has no H- or D- lines of fairseq-generate, so each line is a translation" if system.plain else ""
        raise UsageError(f"{name} against {file}: {problem}{hint}") from problem
    warn(check_test(name, system.targets, references))
    warn(f"{name}: {system.doubt}" if system.doubt else None)

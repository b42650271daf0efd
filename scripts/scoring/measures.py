"""sacreBLEU, chrF, tokenised BLEU and compound-split BLEU of one system, all four computed by sacreBLEU."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF

from fairseq_luna.commands.command_line import CommandError
from scoring.tokens import split_compounds, tokenise

# Sentences of newstest2014 English-German in full, and as the WMT14 organisers filtered it.
_NEWSTEST2014 = {3003, 2737}


@dataclass(frozen=True)
class Measure:
    """One score in percent, with its definition.

    Args:
        name: as it is printed.
        score: from 0 to 100.
        signature: sacreBLEU's.
        hypothesis_length, reference_length: in scored tokens; None for chrF.
        brevity_penalty: from 0 to 1; None for chrF.
        matched: percentage of the hypotheses' tokens that their own references have; None for chrF.
    """

    name: str
    score: float
    signature: str
    hypothesis_length: int | None = None
    reference_length: int | None = None
    brevity_penalty: float | None = None
    matched: float | None = None


@dataclass(frozen=True)
class Scores:
    """All scores of one system; ``sentences`` is the number of scored sentences."""

    sentences: int
    bleu: Measure
    chrf: Measure
    tokenised_bleu: Measure
    compound_split_bleu: Measure

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (self.bleu, self.chrf, self.tokenised_bleu, self.compound_split_bleu)


def sacrebleu(language: str | None, *, lowercase: bool = False) -> BLEU:
    """BLEU with sacreBLEU's tokenizer for ``language``: 13a, but others for Chinese, Japanese and Korean.

    Raises:
        CommandError: the tokenizer needs a library that is not installed.
    """
    try:
        return BLEU(lowercase=lowercase, force=True, trg_lang=language or "")
    except (ImportError, RuntimeError) as error:
        raise CommandError(" ".join(str(error).split())) from error


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    target: str | None = None,
    language: str | None = None,
    tokens: tuple[Sequence[str], Sequence[str]] | None = None,
    lowercase: bool = False,
) -> Scores:
    """Score detokenised text.

    Tokenised BLEU is multi-bleu.perl's: over tokens between spaces, and 0 if no n-gram of some length matches.

    Args:
        hypotheses: one for each reference, in its order.
        references: untouched.
        target: the language, for :func:`sacrebleu`.
        language: of Moses, which tokenises both sides unless ``tokens`` are given; None: text split at spaces.
        tokens: of the hypotheses and the references.
        lowercase: score lower-cased text.

    Raises:
        CommandError: there are no references, or the numbers of hypotheses and references differ.
    """
    check_counts(len(hypotheses), len(references))
    if tokens is not None or language is None:
        made, (ours, theirs) = "as it stands", tokens or (hypotheses, references)
        check_counts(len(ours), len(theirs))
    else:
        made, ours, theirs = f"Moses, {language}", tokenise(hypotheses, language), tokenise(references, language)
    chrf = CHRF(lowercase=lowercase)
    result = chrf.corpus_score(hypotheses, [references])
    return Scores(
        sentences=len(references),
        bleu=_bleu("sacreBLEU", sacrebleu(target, lowercase=lowercase), hypotheses, references),
        chrf=Measure(result.name, result.score, str(chrf.get_signature())),
        tokenised_bleu=_bleu(f"tokenised BLEU ({made})", _multi_bleu(lowercase), ours, theirs),
        compound_split_bleu=_bleu(
            f"compound-split BLEU ({made})",
            _multi_bleu(lowercase),
            [split_compounds(line) for line in ours],
            [split_compounds(line) for line in theirs],
        ),
    )


def check_counts(hypotheses: int, references: int) -> None:
    """Raises CommandError unless both numbers are equal and not 0."""
    if hypotheses != references:
        hint = ""
        if {hypotheses, references} == _NEWSTEST2014:
            hint = (
                ": newstest2014 has 3,003 sentences in full and 2,737 filtered, with other scores; "
                "translate and score the same one"
            )
        raise CommandError(f"{hypotheses:,} hypotheses but {references:,} references{hint}")
    if not references:
        raise CommandError("there are no sentences to score")


def _multi_bleu(lowercase: bool) -> BLEU:
    return BLEU(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)


def _bleu(name: str, metric: BLEU, hypotheses: Sequence[str], references: Sequence[str]) -> Measure:
    result = metric.corpus_score(hypotheses, [references])
    lengths = (result.sys_len, result.ref_len, result.bp)
    return Measure(name, result.score, str(metric.get_signature()), *lengths, matched=result.precisions[0])

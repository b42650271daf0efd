"""BLEU of tokens equals the sacrebleu command's; Moses' tokens are detokenised for the other scores."""

from pathlib import Path

import pytest
from sacremoses import MosesTokenizer

import score_tokens
from score_tokens import bleu_of_tokens
from scored import HYPOTHESES, REFERENCES, found, sacrebleu, write_generated, write_lines
from scoring import tokens


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "test.de", REFERENCES)


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    return write_generated(tmp_path / "generated", HYPOTHESES)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    status = score_tokens.main([*map(str, arguments)])
    shown = capsys.readouterr()
    assert (status, shown.err) == (0, "")
    return shown.out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of the refusal."""
    assert score_tokens.main([*map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    return shown.err.removesuffix("\n").removeprefix("score_tokens.py: ")


@pytest.mark.parametrize("lowercase", [False, True], ids=["cased", "lowercase"])
def test_scores_are_those_of_the_sacrebleu_command(lowercase: bool, tmp_path: Path) -> None:
    hypotheses = [line.upper() if index % 5 == 0 else line for index, line in enumerate(HYPOTHESES)]
    tokeniser = MosesTokenizer("de")
    sides = [[tokeniser.tokenize(line, return_str=True) for line in side] for side in (hypotheses, REFERENCES)]
    whole, split = bleu_of_tokens(*sides, "Moses, de", lowercase=lowercase)
    flags = [*(["-lc"] if lowercase else []), "-m", "bleu", "-tok", "none", "-s", "none", "--force"]
    assert found(whole) == sacrebleu(tmp_path, *sides, *flags)
    cut = ([tokens.split_compounds(line) for line in side] for side in sides)
    assert found(split) == sacrebleu(tmp_path, *cut, *flags)
    assert whole.score != split.score
    assert (whole.hypothesis_length, whole.reference_length) == tuple(
        sum(len(line.split()) for line in side) for side in sides
    )


def test_all_four_scores_are_shown(generated: Path, reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, generated, "--reference", reference)
    assert [
        name for name in ("sacreBLEU", "chrF2", "tokenised BLEU (Moses, de)", "compound-split BLEU") if name in shown
    ] == [*("sacreBLEU", "chrF2", "tokenised BLEU (Moses, de)", "compound-split BLEU")]


def test_compounds_are_split_at_hyphens() -> None:
    assert tokens.split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    assert (
        tokens.split_compounds("U-Bahn-Hof - A-B-C") == "U ##AT##-##AT## Bahn ##AT##-##AT## Hof - A ##AT##-##AT## B-C"
    )
    assert tokens.split_compounds("rich @-@ text a ##AT##-##AT## b -") == "rich @-@ text a ##AT##-##AT## b -"


def test_moses_tokens_are_detokenised_from_the_h_lines(reference: Path, tmp_path: Path, capsys) -> None:
    tokeniser = MosesTokenizer("de")
    written = [tokeniser.tokenize(line, return_str=True, aggressive_dash_splits=True) for line in REFERENCES]
    file = write_generated(tmp_path / "generated", written)
    assert " @-@ " in file.read_text() and "&amp;" in file.read_text()
    assert score_tokens.main([str(file), "--reference", str(reference)]) == 0
    warned = capsys.readouterr()
    assert warned.err.count("\n") == 1 and "--tokenised-by moses" in warned.err
    assert "100.00" not in warned.out
    shown = run(capsys, file, "--reference", reference, "--tokenised-by", "moses")
    assert shown.count("100.00") == 4
    tokenised = write_lines(tmp_path / "test.tok.de", written)
    flags = ("--tokenised-by", "moses", "--tokenised-reference", tokenised)
    assert "100.00  tokenised BLEU (as it stands)" in run(capsys, file, "--reference", reference, *flags)
    # D- lines that fairseq has detokenised are not detokenised again.
    both = write_generated(tmp_path / "both", REFERENCES, written)
    assert run(capsys, both, "--reference", reference).count("100.00") == 4


def test_tokens_are_scored_unchanged(generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = write_lines(tmp_path / "reference.txt", REFERENCES)
    shown = run(capsys, generated, "--reference", reference, "--tokenize", "none")
    expected, _ = bleu_of_tokens(HYPOTHESES, REFERENCES, "as it stands")
    assert f"{expected.score:6.2f}  {expected.name}" in shown
    line = refusal(capsys, generated, "--reference", reference)
    assert line == f"{reference}: Moses has no rules for 'txt'; give --language, such as en, or --tokenize none"
    assert "'xx'" not in run(capsys, generated, "--reference", reference, "--language", "de")
    assert "--language xx: Moses has no rules" in refusal(
        capsys, generated, "--reference", reference, "--language", "xx"
    )


def test_contradicting_flags_are_refused(generated: Path, reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--reference", reference, "--tokenised-reference", reference, "--tokenize", "moses")
    assert "leave out --tokenize moses" in refusal(capsys, generated, *flags)

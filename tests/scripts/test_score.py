"""Scores equal the sacrebleu command's; fairseq-generate's output is read completely and in order, or refused."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sacremoses import MosesTokenizer

import score
from commands import FAMILIES, generate, train
from fairseq_luna.commands.command_line import CommandError
from scoring import measures, pieces, tokens
from scoring.generated import read_both
from scoring.measures import Measure

_WORDS = tuple(
    "der die das Haus rot well-known A-B-C liest schreibt z.B. 3,5 „alte“ Bücher & heute nicht U-Bahn-Hof".split()  # noqa: SIM905
)


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    made = [" ".join(draw.choice(_WORDS) for _ in range(draw.randint(4, 12))) for _ in range(count)]
    return [f"{text[0].upper()}{text[1:]}." for text in made]


def worsened(lines: list[str], seed: int, share: float = 0.3) -> list[str]:
    """The lines without some of their words."""
    draw = random.Random(seed)
    return [" ".join(word for word in line.split() if draw.random() > share) for line in lines]


REFERENCES = sentences(40, 1)
HYPOTHESES = worsened(REFERENCES, 2)


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_generated(path: Path, text: list[str], tokens: list[str] | None = None, numbers: range | None = None) -> Path:
    """Output like fairseq-generate's: longest sentences first, between lines of its log."""
    found = list(zip(numbers or range(len(text)), tokens or text, text, strict=True))
    lines = ["2026-01-01 00:00:00 | INFO | fairseq_cli.generate | H-0 is no hypothesis here", "H-ypotheses follow"]
    for number, written, read in sorted(found, key=lambda each: (-len(each[1]), each[0])):
        lines += [f"S-{number}\tsource", f"T-{number}\t<<unk>> target", f"H-{number}\t-0.25\t{written}"]
        lines += [f"D-{number}\t-0.25\t{read}", f"P-{number}\t-0.1 -0.4"]
    return write_lines(path, [*lines, "Generate test with beam=5: BLEU4 = 1.00, 2.0/3.0/4.0/5.0"])


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "test.de", REFERENCES)


def read_generated(*shards: Path, **options: str) -> list[str]:
    return read_both(shards, **options).text


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    return write_generated(tmp_path / "generated", HYPOTHESES)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    status = score.main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    assert (status, shown.err) == (0, "")
    return shown.out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of the refusal."""
    assert score.main([str(argument) for argument in arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err.removesuffix("\n").removeprefix("score.py: ")


def sacrebleu(tmp_path: Path, hypotheses: list[str], references: list[str], *flags: str) -> list[tuple[float, str]]:
    """Scores and signatures of the sacrebleu command."""
    files = [write_lines(tmp_path / name, lines) for name, lines in (("hyp", hypotheses), ("ref", references))]
    command = [sys.executable, "-m", "sacrebleu", str(files[1]), "-i", str(files[0]), "-w", "12", *flags]
    output = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [(each["score"], each["signature"]) for each in (output if isinstance(output, list) else [output])]


def found(*measures: Measure) -> list[tuple[float, str]]:
    return [(round(measure.score, 12), measure.signature) for measure in measures]


@pytest.mark.parametrize("lowercase", [False, True], ids=["cased", "lowercase"])
def test_scores_are_those_of_the_sacrebleu_command(lowercase: bool, tmp_path: Path) -> None:
    # Some words in capitals, so that lower-casing changes the scores.
    hypotheses = [line.upper() if index % 5 == 0 else line for index, line in enumerate(HYPOTHESES)]
    result = measures.score(hypotheses, REFERENCES, language="de", lowercase=lowercase)
    flags = ["-lc"] if lowercase else []
    chrf_flags = ["--chrf-lowercase"] if lowercase else []
    expected = sacrebleu(tmp_path, hypotheses, REFERENCES, "-m", "bleu", "chrf", *flags, *chrf_flags)
    assert found(result.bleu, result.chrf) == expected
    assert result.chrf.name == "chrF2"
    tokeniser = MosesTokenizer("de")
    ours, theirs = ([tokeniser.tokenize(line, return_str=True) for line in side] for side in (hypotheses, REFERENCES))
    flags += ["-m", "bleu", "-tok", "none", "-s", "none", "--force"]
    assert found(result.tokenised_bleu) == sacrebleu(tmp_path, ours, theirs, *flags)
    split = ([tokens.split_compounds(line) for line in side] for side in (ours, theirs))
    assert found(result.compound_split_bleu) == sacrebleu(tmp_path, *split, *flags)
    assert len({measure.score for measure in result.measures}) == 4
    assert result.sentences == 40
    assert result.tokenised_bleu.hypothesis_length == sum(len(line.split()) for line in ours)
    assert result.tokenised_bleu.reference_length == sum(len(line.split()) for line in theirs)


def test_chinese_is_scored_by_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, changed = ["我们今天去看电影。"] * 2, ["我们今天去看比赛。"] * 2
    generated, reference = write_generated(tmp_path / "out", changed), write_lines(tmp_path / "test.zh", lines)
    assert "tok:zh" in run(capsys, generated, "--reference", reference, "--tokenize", "none")
    assert measures.score(changed, lines, target="zh").bleu.score > 50


def test_compounds_are_split_at_hyphens() -> None:
    assert tokens.split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    assert (
        tokens.split_compounds("U-Bahn-Hof - A-B-C") == "U ##AT##-##AT## Bahn ##AT##-##AT## Hof - A ##AT##-##AT## B-C"
    )
    assert tokens.split_compounds("rich @-@ text a ##AT##-##AT## b -") == "rich @-@ text a ##AT##-##AT## b -"


def test_a_file_is_scored(generated: Path, reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "scores.json"
    shown = run(capsys, generated, "--reference", reference, "--json", output)
    expected = measures.score(HYPOTHESES, REFERENCES, language="de")
    assert shown.startswith(f"{generated}: 40 sentences\n")
    for measure in expected.measures:
        assert f"{measure.score:6.2f}  {measure.name}  {measure.signature}\n" in shown
    assert "tokenised BLEU (Moses, de)" in shown
    assert (
        f"hypotheses {expected.bleu.hypothesis_length:,} tokens, references {expected.bleu.reference_length:,}" in shown
    )
    kept = json.loads(output.read_text(encoding="utf-8"))
    assert kept["systems"][str(generated)]["bleu"]["score"] == expected.bleu.score
    assert kept["paired_bootstrap"] == []
    lower = run(capsys, generated, "--reference", reference, "--lowercase")
    assert lower.count("case:lc") == 4


def test_shards_are_one_system_in_the_order_of_the_sentences(tmp_path: Path) -> None:
    shards = [
        write_generated(tmp_path / str(shard), HYPOTHESES[shard::2], numbers=range(shard, 40, 2)) for shard in (0, 1)
    ]
    assert read_generated(*shards) == HYPOTHESES
    os.mkfifo(tmp_path / "pipe")  # which can be read once
    with subprocess.Popen(["cp", str(shards[0]), str(tmp_path / "pipe")]):
        assert read_generated(tmp_path / "pipe", shards[1]) == HYPOTHESES
    with pytest.raises(CommandError, match=r"sentence 0 and 19 more of 40 missing"):
        read_generated(shards[1])
    with pytest.raises(CommandError, match=r"1, line \d+: D-\d+ is repeated"):
        by_d = write_lines(tmp_path / "d", [line for line in shards[1].read_text().split("\n") if line[:2] != "H-"])
        read_generated(shards[0], by_d, tmp_path / "1")


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    odd = ["a\u2028b", "c\x85d", "", "e\x0bf"]
    assert read_generated(write_generated(tmp_path / "generated", odd)) == odd


SUBWORDS = ["Hal@@ lo Wel@@ t", "ja", "nein@@"]
SENTENCEPIECES = ["\u2581Hal lo \u2581Welt", "\u2581 ja", "\u2581nein"]
WORDS = ["Hallo Welt", "ja", "nein"]


@pytest.mark.parametrize("lines", [SUBWORDS, SENTENCEPIECES, WORDS], ids=["subword-nmt", "sentencepiece", "words"])
@pytest.mark.parametrize("kind", [pieces.AUTO, None, pieces.NONE], ids=["auto", "named", "none"])
def test_pieces_are_joined(lines: list[str], kind: str | None, tmp_path: Path) -> None:
    named = pieces.SUBWORD_NMT if lines is SUBWORDS else pieces.SENTENCEPIECE
    file = write_generated(tmp_path / "generated", lines)
    expected = lines if kind == pieces.NONE else WORDS
    assert read_generated(file, remove_bpe=kind or named) == expected


def test_pieces_that_fairseq_has_joined_are_unchanged(tmp_path: Path) -> None:
    # --bpe joins only the D- lines, --remove-bpe both; a single ▁ may be a character of the text.
    file = write_generated(tmp_path / "generated", WORDS, SENTENCEPIECES)
    assert read_both([file]) == (WORDS, WORDS, False)
    assert read_both([file], pieces.SENTENCEPIECE) == (WORDS, WORDS, False)
    assert pieces.join(["a \u2581 b", "c d", "e f"]) == ["a \u2581 b", "c d", "e f"]


def test_moses_tokens_are_detokenised_from_the_h_lines(reference: Path, tmp_path: Path, capsys) -> None:
    tokeniser = MosesTokenizer("de")
    written = [tokeniser.tokenize(line, return_str=True, aggressive_dash_splits=True) for line in REFERENCES]
    file = write_generated(tmp_path / "generated", written)
    assert " @-@ " in file.read_text() and "&amp;" in file.read_text()
    assert score.main([str(file), "--reference", str(reference)]) == 0
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
    expected = measures.score(HYPOTHESES, REFERENCES)
    assert f"{expected.tokenised_bleu.score:6.2f}  tokenised BLEU (as it stands)" in shown
    line = refusal(capsys, generated, "--reference", reference)
    assert line == f"{reference}: Moses has no rules for 'txt'; give --language, such as en, or --tokenize none"
    assert "'xx'" not in run(capsys, generated, "--reference", reference, "--language", "de")
    assert "--language xx: Moses has no rules" in refusal(
        capsys, generated, "--reference", reference, "--language", "xx"
    )


def test_paired_bootstrap_equals_the_sacrebleu_command(reference: Path, tmp_path: Path, capsys) -> None:
    systems = {"worse": worsened(REFERENCES, 3, 0.6), "better": worsened(REFERENCES, 4, 0.1), "like": HYPOTHESES}
    systems["baseline"] = worsened(REFERENCES, 5)
    files = {name: write_generated(tmp_path / name, lines) for name, lines in systems.items()}
    output = tmp_path / "scores.json"
    shown = run(
        capsys,
        *(files["worse"], "--other", files["better"], "--other", files["like"], "--baseline", files["baseline"]),
        *("--reference", reference, "--paired-bs", 200, "--seed", 7, "--json", output),
    )
    order = ("baseline", "worse", "better", "like")
    plain = [write_lines(tmp_path / f"{name}.txt", systems[name]) for name in order]
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", *map(str, plain), "-m", "bleu", "chrf"]
    command += ["--paired-bs", "--paired-bs-n", "200", "-w", "4", "-f", "text"]
    environment = {**os.environ, "SACREBLEU_SEED": "7", "PYTHONIOENCODING": "utf-8"}
    table = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=environment).stdout
    rows = json.loads(output.read_text(encoding="utf-8"))["paired_bootstrap"]
    assert [(Path(row["system"]).name, row["measure"]) for row in rows] == [
        (name, measure) for measure in ("BLEU", "chrF2") for name in order
    ]
    # sacreBLEU's table has a row for each system and a column for each measure.
    rows = [row for pair in zip(rows[:4], rows[4:], strict=True) for row in pair]
    assert re.findall(r"[\d.]+ \([\d.]+ ± [\d.]+\)", table) == [
        f"{row['score']:.4f} ({row['mean']:.4f} ± {row['interval']:.4f})" for row in rows
    ]
    assert re.findall(r"\(p = ([\d.]+)\)", table) == [f"{row['p']:.4f}" for row in rows if row["p"] is not None]
    assert {row["signature"] for row in rows} == set(re.findall(r"nrefs:\S+", table))
    assert "paired bootstrap against " + str(files["baseline"]) in shown
    significant = [row["p"] < 0.05 for row in rows if row["measure"] == "BLEU" and row["p"] is not None]
    assert significant == [True, True, False]


def test_counts_must_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated = write_generated(tmp_path / "generated", ["a b"] * 3003)
    reference = write_lines(tmp_path / "test.de", ["a b"] * 2737)
    line = refusal(capsys, generated, "--reference", reference)
    assert line.startswith(f"{generated} against {reference}: 3,003 hypotheses but 2,737 references: newstest2014 has ")
    other = write_lines(tmp_path / "other.de", ["a b"] * 3000)
    line = refusal(capsys, generated, "--reference", other)
    assert line == f"{generated} against {other}: 3,003 hypotheses but 3,000 references"
    tokenised = refusal(
        capsys,
        generated,
        "--reference",
        write_lines(tmp_path / "all.de", ["a b"] * 3003),
        "--tokenised-reference",
        other,
    )
    assert tokenised == f"{generated} against {other}: 3,003 hypotheses but 3,000 references"
    with pytest.raises(CommandError, match="1 hypotheses but 2 references"):
        measures.score(["a"], ["a", "b"])
    with pytest.raises(CommandError, match="no sentences"):
        measures.score([], [])


def test_plain_translations_are_scored(generated: Path, reference: Path, tmp_path: Path, capsys) -> None:
    """As ``python -m fairseq_luna translate`` writes them, from a file or a pipe."""
    plain = write_lines(tmp_path / "test.out", HYPOTHESES)
    expected = run(capsys, generated, "--reference", reference).replace(str(generated), str(plain))
    assert run(capsys, plain, "--reference", reference) == expected
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", str(plain), str(pipe)]):
        assert run(capsys, pipe, "--reference", reference) == expected.replace(str(plain), str(pipe))
    write_lines(plain, HYPOTHESES[1:])
    assert refusal(capsys, plain, "--reference", reference) == (
        f"{plain} against {reference}: 39 hypotheses but 40 references; it has no H- or D- lines of fairseq-generate, "
        "so each line is a translation"
    )
    assert refusal(capsys, plain).startswith("--reference FILE is missing: the true translations, untouched")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("another order", [f"Haus{n} steht{n} am{n} See{n} ." for n in range(1, 41)]),
        ("another language", ["The small house is red ."] * 40),
    ],
)
def test_another_reference_is_noticed(kind: str, text: list[str], tmp_path: Path, capsys) -> None:
    reference = write_lines(tmp_path / "test.de", [f"Haus{n} steht{n} am{n} See{n} ." for n in range(40)])
    assert score.main([str(write_lines(tmp_path / kind, text)), "--reference", str(reference)]) == 0
    warned = capsys.readouterr().err
    found = re.search(r"^score.py: warning: only (\d+)% of the words of .* are in the same line of .*\?$", warned, re.M)
    assert found and int(found[1]) < 25


def test_an_unreadable_file_is_named(generated: Path, reference: Path, tmp_path: Path, capsys) -> None:
    missing, empty, latin = (tmp_path / name for name in ("missing", "empty", "latin.de"))
    empty.touch()
    latin.write_bytes("Übung\n".encode("latin-1"))
    assert refusal(capsys, missing, "--reference", reference) == f"{missing}: No such file or directory"
    assert refusal(capsys, generated, "--reference", missing) == f"{missing}: No such file or directory"
    assert refusal(capsys, tmp_path, "--reference", reference) == f"{tmp_path}: Is a directory"
    assert refusal(capsys, empty, "--reference", reference) == f"{empty}: has no text"
    assert "0 references" in refusal(capsys, generated, "--reference", empty, "--tokenize", "none")
    assert refusal(capsys, generated, "--reference", latin).startswith(f"{latin}, line 1: not UTF-8 (")
    cut = write_lines(tmp_path / "cut", ["H-0\t-0.1\ta", "D-0\t-0.1\ta", "H-1\t-0.1\tb", "D-1\t-0.1"])
    assert refusal(capsys, cut, "--reference", reference) == (f"{cut}, line 4: 'D-1\t-0.1' is cut off; translate again")
    cut = write_lines(cut, ["H-0\t-0.1\ta", "D-0\t-0.1\ta", "H-1\t-0.1\tb"])
    assert refusal(capsys, cut, "--reference", reference) == f"{cut}: sentence 1 has no D- line; is it cut off?"


def test_contradicting_flags_are_refused(generated: Path, reference: Path, tmp_path: Path, capsys) -> None:
    common = (generated, "--reference", reference)
    assert refusal(capsys, *common, "--paired-bs", 10).endswith("give a --baseline to compare with")
    assert refusal(capsys, *common, "--baseline", generated) == f"{generated} is given as two systems"
    before = generated.read_bytes()
    assert refusal(capsys, *common, "--json", generated).endswith("that is an input; give another name")
    assert generated.read_bytes() == before
    assert "there is no folder" in refusal(capsys, *common, "--json", tmp_path / "none" / "scores.json")
    flags = ("--tokenised-reference", reference, "--tokenize", "moses")
    assert "leave out --tokenize moses" in refusal(capsys, *common, *flags)


def test_the_output_of_fairseq_generate_is_read(
    tiny_data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = train(
        tiny_data,
        tmp_path,
        *FAMILIES["luna"],
        "--optimizer=adam",
        "--lr=0.01",
        "--max-update=3",
        "--criterion=cross_entropy",
        "--disable-validation",
    )
    capsys.readouterr()
    generate(tiny_data, str(checkpoint), "--beam=2", "--batch-size=3")
    printed = tmp_path / "printed"
    printed.write_text(capsys.readouterr().out, encoding="utf-8")
    generate(tiny_data, str(checkpoint), "--beam=2", "--batch-size=3", f"--results-path={tmp_path}")
    capsys.readouterr()
    kept = tmp_path / "generate-valid.txt"
    hypotheses = read_generated(kept)
    assert len(hypotheses) == 7
    assert read_generated(printed) == hypotheses
    targets = dict(line.split("\t") for line in kept.read_text().splitlines() if line.startswith("T-"))
    references = [targets[f"T-{index}"] for index in range(7)]
    reference = write_lines(tmp_path / "valid.b", references)
    shown = run(capsys, kept, "--reference", reference, "--tokenize", "none")
    (expected,) = sacrebleu(tmp_path, hypotheses, references, "-m", "bleu")
    assert f"{expected[0]:6.2f}  sacreBLEU  {expected[1]}\n" in shown

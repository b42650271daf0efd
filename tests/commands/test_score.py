"""Scores equal the sacrebleu command's; fairseq-generate's output is read completely and in order, or refused."""

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from commands import APOLLO, FAMILIES, generate, train
from fairseq_luna.__main__ import main
from fairseq_luna.commands.scoring.metrics import ScoringOptions, paired_bootstrap, score
from fairseq_luna.commands.scoring.system_output import (
    AUTO,
    NONE,
    SENTENCEPIECE,
    SUBWORD_NMT,
    join_subwords,
    read_translations,
)
from fairseq_luna.text_files import truncate
from fairseq_luna.usage_error import UsageError
from own_command import refused, shown

WORDS = "der die das Haus rot well-known A-B-C liest schreibt z.B. 3,5 „alte“ Bücher & heute nicht U-Bahn-Hof"


def sentences(count):
    draw, words = random.Random(1), WORDS.split()
    made = [" ".join(draw.choice(words) for _ in range(draw.randint(4, 12))) for _ in range(count)]
    return [f"{text[0].upper()}{text[1:]}." for text in made]


def worsened(lines, seed, share=0.3):
    """The lines without some of their words."""
    draw = random.Random(seed)
    return [" ".join(word for word in line.split() if draw.random() > share) for line in lines]


REFERENCES = sentences(40)
HYPOTHESES = worsened(REFERENCES, 2)


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_generated(path, text, tokens=None, numbers=None):
    """Output like fairseq-generate's: longest sentences first, between lines of its log."""
    found = list(zip(numbers or range(len(text)), tokens or text, text, strict=True))
    lines = ["2026-01-01 00:00:00 | INFO | fairseq_cli.generate | H-0 is no hypothesis here", "H-ypotheses follow"]
    for number, written, read in sorted(found, key=lambda each: (-len(each[1]), each[0])):
        lines += [f"S-{number}\tsource", f"T-{number}\t<<unk>> target", f"H-{number}\t-0.25\t{written}"]
        lines += [f"D-{number}\t-0.25\t{read}", f"P-{number}\t-0.1 -0.4"]
    return write_lines(path, [*lines, "Generate test with beam=5: BLEU4 = 1.00, 2.0/3.0/4.0/5.0"])


@pytest.fixture
def reference(tmp_path):
    return write_lines(tmp_path / "test.de", REFERENCES)


def read_generated(*shards, **options):
    return read_translations(shards, **options).text


@pytest.fixture
def generated(tmp_path):
    return write_generated(tmp_path / "generated", HYPOTHESES)


def run(capsys, *arguments):
    return shown(capsys, "score", *arguments)


def refusal(capsys, *arguments):
    return refused(capsys, "score", *arguments)


@pytest.mark.parametrize("lowercase", [False, True], ids=["cased", "lowercase"])
@pytest.mark.parametrize("samples", [1, 50], ids=["alone", "confidence"])
@pytest.mark.parametrize("count", [1, 2], ids=["one reference", "two references"])
def test_scores_are_those_of_the_sacrebleu_command(lowercase, samples, count, tmp_path):
    # Some words in capitals, so that lower-casing changes the scores.
    hypotheses = [line.upper() if index % 5 == 0 else line for index, line in enumerate(HYPOTHESES)]
    other = worsened(REFERENCES, 9)
    references = [REFERENCES, other][:count]
    result = score(hypotheses, references, ScoringOptions(lowercase=lowercase, ter=True), samples=samples)
    flags = ["-lc", "--chrf-lowercase"] if lowercase else []
    flags += ["--confidence", "--confidence-n", str(samples)] if samples > 1 else []
    files = [write_lines(tmp_path / str(number), lines) for number, lines in enumerate((*references, hypotheses))]
    command = [sys.executable, "-m", "sacrebleu", *files[:-1], "-i", files[-1], "-w", "12", *flags]
    command += ["-m", "bleu", "chrf", "ter"]
    expected = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found = [(round(measure.score, 12), measure.signature) for measure in result.measures]
    assert found == [(each["score"], each["signature"]) for each in expected]
    assert [measure.name for measure in result.measures] == ["sacreBLEU", "chrF2", "TER"]
    assert all(f"nrefs:{count}|" in measure.signature for measure in result.measures)
    assert (result.sentences, result.bleu) == (40, result.measures[0])


def test_a_file_is_scored(generated, reference, tmp_path, capsys):
    output = tmp_path / "scores.json"
    text = run(capsys, generated, "--reference", reference, "--json", output)
    expected = score(HYPOTHESES, [REFERENCES])
    assert text.startswith("tokenizer 13a: the default, for text with spaces between words; ")
    assert f"\n{generated}: 40 sentences\n" in text
    for measure in expected.measures:
        assert f"{measure.score:6.2f}  {measure.name}  {measure.signature}\n" in text
    lengths = f"hypotheses {expected.bleu.hypothesis_length:,} tokens, references {expected.bleu.reference_length:,}"
    assert lengths in text
    kept = json.loads(output.read_text(encoding="utf-8"))
    assert kept["systems"][str(generated)]["scores"]["sacreBLEU"]["score"] == expected.bleu.score
    assert (kept["paired_bootstrap"], kept["references"], kept["tokenizer"]) == ([], [str(reference)], "13a")
    assert run(capsys, generated, "--reference", reference, "--lowercase").count("case:lc") == 2


def test_confidence_is_what_the_next_command_shows(generated, reference, capsys):
    *_, following = run(capsys, generated, "--reference", reference).splitlines()
    program, command, *given = shlex.split(following)
    assert (program.rpartition("/")[2], command) == ("fairseq-luna", "score")
    assert main([command, *given]) == 0
    output = capsys.readouterr()
    expected = score(HYPOTHESES, [REFERENCES], samples=1000)
    for measure in expected.measures:
        line = f"{measure.mean:.2f} ± {measure.interval:.2f} in 95 % of resampled tests"
        assert measure.interval > 0.1 and line in output.out
    assert "drawing 1,000 tests" in output.err
    assert "how sure" not in output.out


def test_the_next_command_scores_the_same(tmp_path, reference, capsys):
    generated = write_generated(tmp_path / "generated", worsened(["Das@@ Haus " + line for line in REFERENCES], 2))
    labels = write_lines(tmp_path / "labels", [f"{'ab'[line // 20]}\t{line // 4}" for line in range(40)])
    other = write_lines(tmp_path / "other.de", worsened(REFERENCES, 9))
    flags = ("--reference", reference, other, "--lowercase", "--language", "de_AT", "--remove-bpe", "none", "--ter")
    flags += ("--documents", labels, "--sources", "b", "a")
    printed = run(capsys, generated, *flags)
    _, *given, last = shlex.split(printed.splitlines()[-1])
    assert last == "--confidence" and main(given) == 0
    assert capsys.readouterr().out == printed


def test_shards_are_one_system_in_the_order_of_the_sentences(tmp_path):
    shards = [
        write_generated(tmp_path / str(shard), HYPOTHESES[shard::2], numbers=range(shard, 40, 2)) for shard in (0, 1)
    ]
    assert read_generated(*shards) == HYPOTHESES
    os.mkfifo(tmp_path / "pipe")  # which can be read once
    with subprocess.Popen(["cp", str(shards[0]), str(tmp_path / "pipe")]):
        assert read_generated(tmp_path / "pipe", shards[1]) == HYPOTHESES
    with pytest.raises(UsageError, match=r"sentence 0 and 19 more of 40 missing"):
        read_generated(shards[1])
    with pytest.raises(UsageError, match=r"1, line \d+: D-\d+ is repeated"):
        by_d = write_lines(tmp_path / "d", [line for line in shards[1].read_text().split("\n") if line[:2] != "H-"])
        read_generated(shards[0], by_d, tmp_path / "1")


@pytest.mark.parametrize("mark", ["@@", "\u2581"], ids=["subword-nmt", "sentencepiece"])
@pytest.mark.parametrize("every", [1, 3])
def test_a_mark_that_the_reference_has_too_is_text(mark, every, tmp_path, capsys):
    """Identical files have the best score, however many lines have the mark."""
    lines = [
        f"{mark}Zeile {line[:-1]}{mark}" if number % every == 0 else line for number, line in enumerate(REFERENCES)
    ]
    files = [write_lines(tmp_path / name, lines) for name in ("hyp", "ref.de")]
    assert main(["score", str(files[0]), "--reference", str(files[1])]) == 0
    output = capsys.readouterr()
    assert " 100.00  sacreBLEU" in output.out
    if mark == "@@" or every == 1:
        share = "100.0%" if every == 1 else "35.0%"
        kind = SUBWORD_NMT if mark == "@@" else SENTENCEPIECE
        said = f"'{mark}' in {share} of the lines, and in {share} of the references', is taken for text"
        assert f"warning: {files[0]}: {said}; if it is of pieces, give --remove-bpe {kind}\n" in output.err
    else:
        assert output.err == ""


def test_a_mark_in_few_lines_is_text(tmp_path, reference, capsys):
    lines = ["Zeile mit Zei@@ chen.", *HYPOTHESES[1:]]
    generated = write_lines(tmp_path / "generated", lines)
    for flags, expected in (((), lines), (("--remove-bpe", "subword-nmt"), ["Zeile mit Zeichen.", *lines[1:]])):
        assert main(["score", str(generated), "--reference", str(reference), *flags]) == 0
        output = capsys.readouterr()
        assert f"{score(expected, [REFERENCES]).bleu.score:6.2f}  sacreBLEU" in output.out
        assert ("'@@' in 2.5% of the lines is taken for text; if it is of pieces" in output.err) == (not flags)


SUBWORDS = ["Hal@@ lo Wel@@ t", "ja", "nein@@"]
SENTENCEPIECES = ["\u2581Hal lo \u2581Welt", "\u2581 ja", "\u2581nein"]
JOINED = ["Hallo Welt", "ja", "nein"]


@pytest.mark.parametrize("lines", [SUBWORDS, SENTENCEPIECES, JOINED], ids=["subword-nmt", "sentencepiece", "words"])
@pytest.mark.parametrize("kind", [AUTO, None, NONE], ids=["auto", "named", "none"])
def test_pieces_are_joined(lines, kind, tmp_path):
    named = SUBWORD_NMT if lines is SUBWORDS else SENTENCEPIECE
    file = write_generated(tmp_path / "generated", lines)
    expected = lines if kind == NONE else JOINED
    assert read_generated(file, remove_bpe=kind or named) == expected


def test_pieces_that_fairseq_has_joined_are_unchanged(tmp_path):
    # --bpe joins only the D- lines, --remove-bpe both; a single ▁ may be a character of the text.
    file = write_generated(tmp_path / "generated", JOINED, SENTENCEPIECES)
    for kind in (AUTO, SENTENCEPIECE):
        assert read_translations([file], kind)[:2] == (JOINED, False)
    assert join_subwords(["a \u2581 b", "c d", "e f"]) == (["a \u2581 b", "c d", "e f"], None)


def test_the_same_translations_do_not_differ_significantly(reference, tmp_path, capsys):
    files = [write_lines(tmp_path / name, worsened(REFERENCES, 5)) for name in ("one.de", "other.de")]
    flags = ("--samples", 50, "--json", tmp_path / "scores.json")
    run(capsys, files[0], "--paired", files[1], "--reference", reference, *flags)
    rows = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["paired_bootstrap"]
    assert [row["p"] for row in rows if row["system"] == str(files[0])] == [1.0, 1.0]


def test_the_paired_bootstrap_equals_the_sacrebleu_command(reference, tmp_path, capsys):
    baseline, significant = worsened(REFERENCES, 5), []
    for name, lines in (("worse", worsened(REFERENCES, 3, 0.6)), ("like", HYPOTHESES)):
        files = [write_generated(tmp_path / kind, text) for kind, text in (("other", baseline), (name, lines))]
        output = tmp_path / "scores.json"
        flags = ("--samples", 200, "--seed", 7, "--json", output, "--ter")
        text = run(capsys, files[1], "--paired", files[0], "--reference", reference, *flags)
        assert f"paired bootstrap against {files[0]}" in text
        plain = [write_lines(tmp_path / f"{kind}.txt", text) for kind, text in (("other", baseline), (name, lines))]
        command = [
            sys.executable,
            "-m",
            "sacrebleu",
            str(reference),
            "-i",
            *map(str, plain),
            "-m",
            "bleu",
            "chrf",
            "ter",
        ]
        command += ["--paired-bs", "--paired-bs-n", "200", "-w", "4", "-f", "text"]
        environment = {**os.environ, "SACREBLEU_SEED": "7", "PYTHONIOENCODING": "utf-8"}
        table = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=environment).stdout
        rows = json.loads(output.read_text(encoding="utf-8"))["paired_bootstrap"]
        assert [(Path(row["system"]).name, row["measure"]) for row in rows] == [
            (kind, measure) for measure in ("BLEU", "chrF2", "TER") for kind in ("other", name)
        ]
        # sacreBLEU's table has a row for each system and a column for each measure.
        assert re.findall(r"[\d.]+ \([\d.]+ ± [\d.]+\)", table) == [
            f"{rows[place]['score']:.4f} ({rows[place]['mean']:.4f} ± {rows[place]['interval']:.4f})"
            for place in (0, 2, 4, 1, 3, 5)
        ]
        assert re.findall(r"\(p = ([\d.]+)\)", table) == [f"{rows[place]['p']:.4f}" for place in (1, 3, 5)]
        assert {row["signature"] for row in rows} == set(re.findall(r"nrefs:\S+", table))
        significant.append(rows[1]["p"] < 0.05)
    assert significant == [True, False]


def test_several_systems_and_references(reference, tmp_path, capsys):
    """Each system is scored, and compared with each of --paired, however the flags are written."""
    texts = {
        "one": HYPOTHESES,
        "two": worsened(REFERENCES, 3),
        "old": worsened(REFERENCES, 4),
        "bad": worsened(REFERENCES, 5),
    }
    one, two, old, bad = (write_lines(tmp_path / name, lines) for name, lines in texts.items())
    other = write_lines(tmp_path / "other.de", worsened(REFERENCES, 9))
    draws, printed = ("--samples", 20), []
    for flags in (
        ("--paired", old, bad, "--reference", reference, other),
        ("--paired", old, "--reference", reference, "--paired", bad, "--reference", other),
    ):
        printed.append(run(capsys, one, two, *flags, *draws, "--json", tmp_path / "scores.json"))
    assert printed[0] == printed[1]
    kept = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert kept["references"] == [str(reference), str(other)]
    both = [REFERENCES, worsened(REFERENCES, 9)]
    assert {name: found["scores"]["sacreBLEU"]["score"] for name, found in kept["systems"].items()} == {
        str(tmp_path / name): score(lines, both).bleu.score for name, lines in texts.items()
    }
    rows = [(Path(row["baseline"]).name, Path(row["system"]).name) for row in kept["paired_bootstrap"]]
    assert rows == [
        (baseline, name) for baseline in ("old", "bad") for _ in range(2) for name in (baseline, "one", "two")
    ]
    found = paired_bootstrap({str(bad): texts["bad"], str(two): texts["two"]}, both, samples=20)
    [row] = [row for row in found if (row.system, row.measure) == (str(two), "BLEU")]
    assert row._asdict() in kept["paired_bootstrap"]


def test_the_translation_may_follow_the_reference(generated, reference, tmp_path, capsys):
    expected = run(capsys, generated, "--reference", reference)
    assert run(capsys, "--reference", reference, generated) == expected
    other = write_lines(tmp_path / "other.de", worsened(REFERENCES, 9))
    both = run(capsys, generated, "--reference", other, "--reference", reference)
    assert "nrefs:2" in both and run(capsys, "--reference", other, "--reference", reference, generated) == both
    assert run(capsys, "--reference", reference, "--ter", generated).count("  TER  ") == 1
    for flags in (
        ("--reference", other, reference, generated),
        ("--reference", reference, "--paired", other, generated),
    ):
        assert refusal(capsys, *flags).startswith("the translations are missing: give HYPOTHESES first, before the ")


def test_files_are_systems_if_each_has_all_sentences_else_parts_of_one(reference, tmp_path, capsys):
    parts = [write_lines(tmp_path / "a", HYPOTHESES[:9]), write_lines(tmp_path / "b", HYPOTHESES[9:])]
    both = [
        write_generated(tmp_path / name, lines) for name, lines in (("c", HYPOTHESES), ("d", worsened(REFERENCES, 3)))
    ]
    ours, other = (f"{score(lines, [REFERENCES]).bleu.score:6.2f}" for lines in (HYPOTHESES, worsened(REFERENCES, 3)))
    assert re.findall(r"^ +[\d.]+(?=  sacreBLEU)", run(capsys, *parts, "--reference", reference), re.M) == [f"  {ours}"]
    printed = run(capsys, *both, "--reference", reference)
    assert re.findall(r"^ +[\d.]+(?=  sacreBLEU)", printed, re.M) == [f"  {ours}", f"  {other}"]
    printed = run(capsys, both[0], "--paired", *parts, "--reference", reference, "--samples", 2)
    assert printed.count("  sacreBLEU  ") == 2
    whole = write_lines(tmp_path / "whole", HYPOTHESES)
    assert refusal(capsys, whole, parts[0], "--reference", reference) == (
        f"{whole} has 40 translations, {parts[0]} has 9 translations, and the reference has 40 lines: "
        "give systems with all of them, or the parts of one"
    )
    assert "18 hypotheses but 40 references" in refusal(capsys, parts[0], parts[0], "--reference", reference)


def test_references_must_have_as_many_lines(generated, reference, tmp_path, capsys):
    short = write_lines(tmp_path / "short.de", REFERENCES[:-1])
    said = refusal(capsys, generated, "--reference", reference, short)
    assert said == f"--reference: {reference} has 40 lines, but {short} has 39; give references of the same sentences"
    said = refusal(capsys, generated, "--reference", reference, "--reference", reference)
    assert said == f"--reference {reference} {reference}: a file is given twice; give it once"


def test_a_reference_of_several_may_be_that_of_fairseq_generate(tmp_path, reference, capsys):
    targets = [f"T-{number}\t{line}" for number, line in enumerate(REFERENCES)]
    hypotheses = [f"H-{number}\t-0.1\t{line}" for number, line in enumerate(HYPOTHESES)]
    generated = write_lines(tmp_path / "generated", [*targets, *hypotheses])
    other = write_lines(tmp_path / "other.de", REFERENCES[::-1])
    run(capsys, generated, "--reference", other, reference)
    said = refusal(capsys, generated, "--reference", other)
    assert said.startswith(f"{other} differs from the reference of the test that {generated} is of in 40 of 40 lines")


def test_counts_must_agree(tmp_path, capsys):
    generated = write_generated(tmp_path / "generated", ["a b"] * 3003)
    reference = write_lines(tmp_path / "test.de", ["a b"] * 2737)
    line = refusal(capsys, generated, "--reference", reference)
    assert line.startswith(f"{generated} against {reference}: 3,003 hypotheses but 2,737 references: newstest2014 has ")
    other = write_lines(tmp_path / "other.de", ["a b"] * 3000)
    line = refusal(capsys, generated, "--reference", other)
    assert line == f"{generated} against {other}: 3,003 hypotheses but 3,000 references"
    with pytest.raises(UsageError, match="1 hypotheses but 2 references"):
        score(["a"], [["a", "b"]])
    with pytest.raises(UsageError, match="no sentences"):
        score([], [[]])


def test_plain_translations_are_scored(generated, reference, tmp_path, capsys):
    """As ``fairseq-luna translate`` writes them, from a file or a pipe."""
    plain = write_lines(tmp_path / "test.out", HYPOTHESES)
    expected = run(capsys, generated, "--reference", reference).replace(str(generated), str(plain))
    assert run(capsys, plain, "--reference", reference) == expected
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", str(plain), str(pipe)]):
        scores, _, _ = expected.partition("\nhow sure")  # a command with the pipe could not be run again
        assert run(capsys, pipe, "--reference", reference) == scores.replace(str(plain), str(pipe))
    write_lines(plain, HYPOTHESES[1:])
    assert refusal(capsys, plain, "--reference", reference) == (
        f"{plain} against {reference}: 39 hypotheses but 40 references; it has no H- or D- lines of fairseq-generate, "
        "so each line is a translation"
    )
    assert refusal(capsys, plain).startswith("--reference FILE is missing: the untouched reference translation")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("another order", [f"Haus{n} steht{n} am{n} See{n} ." for n in range(1, 41)]),
        ("another language", ["The small house is red ."] * 40),
    ],
)
def test_another_reference_is_noticed(kind, text, tmp_path, capsys):
    reference = write_lines(tmp_path / "test.de", [f"Haus{n} steht{n} am{n} See{n} ." for n in range(40)])
    assert main(["score", str(write_lines(tmp_path / kind, text)), "--reference", str(reference)]) == 0
    warned = capsys.readouterr().err
    found = re.search(
        r"^fairseq-luna score: warning: only (\d+)% of the words of .* are in the same line of .*\?$", warned, re.M
    )
    assert found and int(found[1]) < 25


def test_the_reference_of_another_test_is_refused(generated, tmp_path, capsys):
    """fairseq-generate's T- lines are the true one: here in tokens, escaped as Moses does, one with an unknown word."""
    tokens = [" ".join(re.findall(r"\w+|[^\w\s]", line)).replace("&", "&amp;") for line in REFERENCES]
    targets = [f"T-{number}\t{'<<unk>> ' if number == 7 else ''}{line}" for number, line in enumerate(tokens)]
    others = [line for line in generated.read_text(encoding="utf-8").splitlines() if not line.startswith("T-")]
    write_lines(generated, others + targets)
    run(capsys, generated, "--reference", write_lines(tmp_path / "right.de", REFERENCES))
    wrong = write_lines(tmp_path / "wrong.de", REFERENCES[::-1])
    assert refusal(capsys, generated, "--reference", wrong) == (
        f"{wrong} differs from the reference of the test that {generated} is of in 39 of 39 lines: line 1 is "
        f"'{truncate(REFERENCES[-1], 50)}', not '{truncate(tokens[0], 50)}' (T-0); give that "
        "test's reference, in its order"
    )
    write_lines(wrong, [*REFERENCES[:5], "Anderes.", *REFERENCES[6:]])
    assert main(["score", str(generated), "--reference", str(wrong)]) == 0
    assert "warning: " in (warned := capsys.readouterr().err)
    assert "is of in 1 of 39 lines: line 6 is 'Anderes.', not '" in warned


def test_an_unreadable_file_is_named(generated, reference, tmp_path, capsys):
    missing, empty, latin = (tmp_path / name for name in ("missing", "empty", "latin.de"))
    empty.touch()
    latin.write_bytes("Übung\n".encode("latin-1"))
    wide = tmp_path / "wide.de"
    wide.write_bytes("".join(f"{line}\n" for line in REFERENCES).encode("utf-16-le"))
    said = f"{wide}, line 1: is UTF-16LE, not UTF-8; convert it: iconv -f UTF-16LE -t UTF-8"
    assert refusal(capsys, generated, "--reference", wide) == said
    assert refusal(capsys, wide, "--reference", reference) == said
    assert refusal(capsys, generated, "--reference", reference, "--paired", wide) == said
    assert refusal(capsys, generated, "--reference", reference, "--documents", wide) == said
    assert refusal(capsys, missing, "--reference", reference) == f"{missing}: No such file or directory"
    assert refusal(capsys, empty, "--reference", reference) == f"{empty}: has no text"
    assert refusal(capsys, generated, "--reference", empty) == f"--reference {empty}: has no text"
    said = refusal(capsys, generated, "--reference", latin)
    assert said.startswith(f"{latin}, line 1: not UTF-8 (") and said.endswith("iconv -f LATIN1 -t UTF-8")
    cut = write_lines(tmp_path / "cut", ["H-0\t-0.1\ta", "D-0\t-0.1\ta", "H-1\t-0.1\tb", "D-1\t-0.1"])
    assert refusal(capsys, cut, "--reference", reference) == (f"{cut}, line 4: 'D-1\t-0.1' is cut off; translate again")
    cut = write_lines(cut, ["H-0\t-0.1\ta", "D-0\t-0.1\ta", "H-1\t-0.1\tb"])
    assert refusal(capsys, cut, "--reference", reference) == f"{cut}: sentence 1 has no D- line; is it cut off?"


def test_contradicting_flags_are_refused(generated, reference, tmp_path, capsys):
    common = (generated, "--reference", reference)
    assert refusal(capsys, *common, "--samples", 10).startswith("--samples and --seed: give --confidence, or --paired")
    assert refusal(capsys, *common, "--confidence", "--samples", 1) == "--samples 1: must be 2 or more"
    said = refusal(capsys, *common, "--language", "de", "--tokenize", "char")
    assert said == "--language de --tokenize char: both name the tokenizer; give one"
    assert refusal(capsys, *common, "--sources", "news").startswith("--sources: needs --documents")
    assert refusal(capsys, *common, "--paired", generated) == f"{generated} is given as two systems"
    before = generated.read_bytes()
    assert refusal(capsys, *common, "--json", generated).endswith("that is an input; give another name")
    assert generated.read_bytes() == before
    assert "there is no folder" in refusal(capsys, *common, "--json", tmp_path / "none" / "scores.json")
    assert refusal(capsys, *common, "--json", tmp_path) == f"--json {tmp_path}: it exists; give another name"


def test_the_output_of_fairseq_generate_is_read(tiny_data, tmp_path, capsys):
    """As it is printed and as it is kept in a file."""
    checkpoint = train(tiny_data, tmp_path, *FAMILIES["luna"], *APOLLO, "--max-update=3", "--disable-validation")
    capsys.readouterr()
    generate(tiny_data, str(checkpoint), "--beam=2", "--batch-size=3")
    printed, kept = tmp_path / "printed", tmp_path / "generate-valid.txt"
    printed.write_text(capsys.readouterr().out, encoding="utf-8")
    generate(tiny_data, str(checkpoint), "--beam=2", "--batch-size=3", f"--results-path={tmp_path}")
    hypotheses = read_generated(kept)
    assert len(hypotheses) == 7
    assert read_generated(printed) == hypotheses

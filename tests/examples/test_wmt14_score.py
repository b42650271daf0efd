"""score.sh averages, translates and scores, or refuses in one line."""

import shlex
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from examples.wmt14_runs import REPOSITORY, ROWS, SHORT, SMALL, TRAIN, english_german, refusal, shell

SCORE = ROWS / "score.sh"
ROW = "fastformer_base"


@pytest.fixture
def prepared(tiny_data, tmp_path):
    """A small output of scripts/prepare_wmt14_ende.py, and an empty folder of checkpoints."""
    data, reference, checkpoints = (tmp_path / name for name in ("bin", "reference", "run"))
    for folder in (data, reference, checkpoints):
        folder.mkdir()
    (reference / "test.de").write_text("w1 w2 w3\n" * 7)
    return SimpleNamespace(data=english_german(tiny_data, data), reference=reference / "test.de", run=checkpoints)


def commands(result):
    assert result.returncode == 0, result.stderr
    return [shlex.split(line) for line in result.stdout.splitlines()]


def test_it_averages_translates_and_scores(prepared):
    average, translate, measure = commands(
        shell(SCORE, ROW, "--cpu", DATA=prepared.data, SAVE_DIR=prepared.run, DRY_RUN=1)
    )
    averaged = str(prepared.run / "average_of_5.pt")
    assert average[1:] == [
        *("-m", "fairseq_luna", "average", str(prepared.run), "--last", "5"),
        *("--output", averaged, "--force"),
    ]
    assert translate[:4] == [sys.executable, "-m", "fairseq_cli.generate", str(prepared.data)]
    following = dict(pairwise(translate))
    assert [following[flag] for flag in ("--path", "--beam", "--lenpen", "--gen-subset")] == [
        *(averaged, "5", "0.6", "test")
    ]
    assert translate[-1] == "--cpu"
    assert measure[1:] == [
        *(str(REPOSITORY / "scripts" / "score_tokens.py"), str(prepared.run / "newstest2014.generated")),
        *("--reference", str(prepared.reference)),
    ]


def test_tokenised_data_are_scored_as_tokens(prepared):
    tokenised = prepared.reference.with_name("test.tok.de")
    tokenised.touch()
    *_, measure = commands(shell(SCORE, ROW, DATA=prepared.data, SAVE_DIR=prepared.run, DRY_RUN=1))
    assert measure[-4:] == ["--tokenised-by", "moses", "--tokenised-reference", str(tokenised)]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"DATA": ""}, "set DATA to the folder"),
        ({"DATA": "/nowhere"}, "there is no dict.en.txt in DATA=/nowhere"),
        ({"SAVE_DIR": "/nowhere"}, "there is no folder /nowhere: train the row first"),
        ({"REFERENCE": "/nowhere"}, "there is no reference /nowhere"),
        ({"LAST": "0"}, "LAST is '0'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_values_end_in_one_line(prepared, environment, said):
    given = {"DATA": prepared.data, "SAVE_DIR": prepared.run, **environment}
    line = refusal(shell(SCORE, ROW, **given))
    assert line.startswith("score.sh: ")
    assert said in line


def test_an_unknown_row_is_refused(prepared):
    assert "there is no row luna_8" in refusal(shell(SCORE, "luna_8", DATA=prepared.data))
    assert "give a row" in refusal(shell(SCORE))


@pytest.mark.slow
def test_a_trained_row_is_scored(prepared, tmp_path):
    place = {"DATA": prepared.data, "SAVE_DIR": prepared.run, "folder": tmp_path}
    trained = shell(TRAIN, ROW, *SMALL, *SHORT, **place, GPUS=1)
    assert trained.returncode == 0, trained.stderr
    assert {file.name for file in Path(prepared.run).glob("*.pt")} >= {"checkpoint1.pt", "checkpoint2.pt"}
    scored = shell(SCORE, ROW, "--cpu", "--gen-subset=valid", "--max-len-b=5", **place, LAST=2)
    assert scored.returncode == 0, scored.stderr
    assert (prepared.run / "average_of_2.pt").exists()
    assert "BLEU" in scored.stdout
    assert (prepared.run / "newstest2014.generated").read_text().count("\nH-") == 7

"""Standard streams that are closed, full or in ASCII, and pipes in place of files: each command works or says so."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from corpus_files import pairs, write_pairs
from fairseq_luna import line_translation
from fairseq_luna.commands.preparing import sentencepiece_model
from fairseq_luna.commands.scoring.system_output import read_translations
from fairseq_luna.commands.shell_commands import program
from own_command import refused, shown

pytestmark = pytest.mark.usefixtures("fairseq_in_forks")

ROOT = Path(__file__).resolve().parents[1]


def shell(line, folder, **environment):
    """Run ``line``, in which ``luna`` is the command, in bash."""
    line = f'luna() {{ "{sys.executable}" -m fairseq_luna "$@"; }}; {line}'
    # An editable install in a folder with an umlaut is not found in an ASCII locale; PYTHONPATH is.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture
def text(tmp_path):
    """The folder of translations and their reference, and of a training text."""
    write_pairs(tmp_path, "text", pairs(60))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("luna translate . <&-", "standard input is closed; give the text with < FILE"),
        ("luna translate . < text.en >&-", "standard output is closed; give a file"),
    ],
)
def test_translating_needs_open_streams(text, line, said):
    (text / "model.pt").touch()
    ended = shell(line, text)
    assert (ended.returncode, ended.stdout) == (2, "") and ended.stderr.startswith(f"fairseq-luna translate: {said}")
    assert len(ended.stderr.splitlines()) == 1


def test_other_commands_work_with_closed_streams(text):
    """The file that is opened first does not become standard output or standard error."""
    for closed in (">&-", "<&-", "2>&-", "<&- >&- 2>&-"):
        ended = shell(f"luna score text.de --reference text.de --json scores.json {closed}", text)
        assert (ended.returncode, ended.stderr) == (0, ""), (closed, ended.stderr)
        assert (text / "scores.json").read_text(encoding="utf-8").startswith('{\n  "references": [')
        (text / "scores.json").unlink()
    ended = shell("luna score none --reference text.de 2>&-", text)
    assert (ended.returncode, ended.stdout) == (2, "")


def test_a_full_disk_at_the_output_is_one_line(text):
    ended = shell("luna score text.de --reference text.de > /dev/full", text)
    assert (ended.returncode, ended.stderr) == (
        1,
        "fairseq-luna score: no space left on the disk; free some and run the same command again\n",
    )


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("environment", [ASCII, {"PYTHONIOENCODING": "ascii"}], ids=["locale", "streams"])
def test_an_ascii_locale_changes_no_result(text, environment):
    ended = shell("luna score text.de --reference text.de --confidence", text, **environment)
    assert ended.returncode == 0 and "100.00 \\xb1 0.00 in 95 % of resampled tests" in ended.stdout, ended.stderr
    ended = shell("luna score größe.de --reference text.de", text, **environment)
    assert ended.returncode == 2 and ended.stderr.isascii() and "No such file" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_name_that_the_locale_cannot_read_is_refused_for_what_sentencepiece_writes(text):
    ended = shell("luna prepare --train text.en text.de -s en -t de --hold-out 5 --out größe", text, **ASCII)
    assert ended.returncode == 2 and "SentencePiece cannot read this name" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_pipes_are_scored_and_their_names_not_repeated(text):
    (text / "text.gz").write_bytes(gzip.compress((text / "text.de").read_bytes()))
    ended = shell("luna score <(zcat text.gz) --reference <(zcat text.gz)", text)
    assert ended.returncode == 0 and "100.00  sacreBLEU" in ended.stdout, ended.stderr
    assert "how sure" not in ended.stdout
    assert "how sure" in shell("luna score text.de --reference text.de", text).stdout


@pytest.mark.parametrize(
    "line",
    [
        "prepare --train <(cat text.en) <(cat text.de) -s en -t de --hold-out 5",
        "average <(cat text.en) --output x.pt",
        "convert <(cat text.en) --arch luna_tiny --output x.pt",
        "translate <(cat text.en)",
        "translate text.en --pieces <(cat text.en)",
        "export <(cat text.en) --output x",
    ],
)
def test_pipes_that_would_be_read_twice_are_refused(text, line):
    ended = shell(f"luna {line} < text.en", text)
    assert ended.returncode == 2 and "is a pipe or a device, and is read more than once; save it" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_lines_that_look_like_marks_of_fairseq_are_text(tmp_path, capsys):
    lines = ["T-34", "Der Panzer ist alt.", "H-2", "D-1"]
    (tmp_path / "plain.de").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert read_translations([tmp_path / "plain.de"]).text == lines
    assert "100.00  sacreBLEU" in shown(capsys, "score", tmp_path / "plain.de", "--reference", tmp_path / "plain.de")
    (tmp_path / "generated").write_text("T-0\ta b\nH-0\t-0.1\ta b\nH-1\n", encoding="utf-8")
    assert "is cut off" in refused(capsys, "score", tmp_path / "generated", "--reference", tmp_path / "plain.de")


def test_such_lines_are_translated(monkeypatch):
    translator = SimpleNamespace(translate=lambda texts, **_: [text.lower() for text in texts])
    assert list(line_translation.translate_lines(translator, ["T-34", "H-2"], 1)) == ["t-34", "h-2"]


@pytest.mark.parametrize("cut", ["joint.model", "joint.vocab"])
def test_a_subword_model_that_a_full_disk_cut_is_not_used(text, capsys, monkeypatch, cut):
    """SentencePiece does not look whether its files could be written."""
    learn = sentencepiece_model.sentencepiece.SentencePieceTrainer.train

    def on_a_full_disk(**options):
        learn(**options)
        for file in [cut] if cut == "joint.vocab" else [cut, "joint.vocab"]:
            path = text / "out" / "work" / "sentencepiece.unfinished" / file
            os.truncate(path, path.stat().st_size // 3)

    flags = ("--train", text / "text.en", text / "text.de", "-s", "en", "-t", "de", "--hold-out", 5, "--workers", 1)
    command = ("prepare", *flags, "--vocabulary-size", 80, "--out", text / "out")
    from fairseq_luna.__main__ import main

    with monkeypatch.context() as full:
        full.setattr(sentencepiece_model.sentencepiece.SentencePieceTrainer, "train", on_a_full_disk)
        assert main([*map(str, command)]) == 1
    assert capsys.readouterr().err.endswith("no space left on the disk; free some and run the same command again\n")
    assert not (text / "out" / "work" / "sentencepiece").exists()
    assert "then translate the test" in shown(capsys, *command)


@pytest.mark.parametrize("name", ["a,b", "a:b"])
def test_marks_that_fairseq_takes_for_the_end_of_a_name_are_refused(text, capsys, name):
    flags = ("--train", text / "text.en", text / "text.de", "-s", "en", "-t", "de", "--hold-out", 5)
    said = refused(capsys, "prepare", *flags, "--out", text / name)
    assert f"fairseq takes {name[1]} for the end of a folder's name" in said


@pytest.mark.slow
def test_a_folder_that_begins_with_a_dash_is_prepared(text, capsys, monkeypatch):
    monkeypatch.chdir(text)
    flags = ("--train", "text.en", "text.de", "-s", "en", "-t", "de", "--hold-out", 5, "--workers", 1)
    said = shown(capsys, "prepare", *flags, "--vocabulary-size", 80, "--out=-out")
    assert f"{program('fairseq-train')} ./-out/bin" in said and (text / "-out" / "bin" / "dict.en.txt").exists()

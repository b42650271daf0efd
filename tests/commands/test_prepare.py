"""A parallel text of any two languages, from files of any names to a data-bin."""

import gzip
import re
from contextlib import nullcontext

import pytest
import torch

from corpus_files import pairs, text
from fairseq_luna.__main__ import main
from fairseq_luna.commands.prepare import VOCABULARIES, check_text_files, of_size, show_commands
from fairseq_luna.commands.training_commands import train_on_text
from fairseq_luna.usage_error import UsageError
from own_command import refused, with_defaults
from pasted import commands, paste
from reader_data import read_texts

pytestmark = pytest.mark.usefixtures("fairseq_in_forks")

TRAIN, VALID = pairs(60, 1), pairs(6, 2)
LANGUAGES = ("-s", "xx", "-t", "cs")


@pytest.fixture
def files(tmp_path):
    """Two training texts, the second gzipped and with a pair to drop, and a valid one."""
    found = {}
    for name, of in {"old": TRAIN[:40], "new": [*TRAIN[40:], ("No other side.", "")], "valid": VALID}.items():
        found[name] = (tmp_path / f"{name}.source", tmp_path / f"{name}.target.gz")
        source, target = zip(*of, strict=True)
        found[name][0].write_bytes(text(source))
        found[name][1].write_bytes(gzip.compress(text(target)))
    return found


def prepare(*flags):
    return main(["prepare", "--workers", "1", *map(str, flags)])


@pytest.mark.parametrize(
    ("pairs_of_text", "size", "pieces"),
    [(900, "tiny", 2000), (160_000, "tiny", 8000), (200_001, "iwslt_de_en", 16000), (5_000_000, "base", 32000)],
)
def test_sizes_fit_the_text(pairs_of_text, size, pieces, tmp_path):
    words = [str(word) for word in train_on_text(tmp_path, ("en", "de"), pairs_of_text)]
    assert words[words.index("--arch") + 1] == f"luna_{size}"
    assert words[words.index("--optimizer") + 1] == "adam"
    assert of_size(pairs_of_text, VOCABULARIES) == pieces


@pytest.mark.parametrize("gpu", [False, True])
def test_the_loss_of_the_printed_command_is_the_chunked_one_without_a_gpu(gpu, tmp_path, monkeypatch, capsys):
    (tmp_path / "bin").mkdir()
    for language in LANGUAGES[1::2]:
        (tmp_path / "bin" / f"dict.{language}.txt").touch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    show_commands(tmp_path, LANGUAGES[1::2], 900, joined=True)
    assert f"--criterion label_smoothed_cross_entropy{'' if gpu else '_chunked'} " in capsys.readouterr().out


def test_pieces_of_two_training_texts_with_a_test_held_out(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    flags = ["--train", *files["old"], "--train", *files["new"], "--valid", *files["valid"], *LANGUAGES]
    flags += ["--hold-out", 5, "--out", out, "--vocabulary-size", 80]
    assert prepare(*flags) == 0
    shown = capsys.readouterr().out
    assert "training pairs: 56 kept, 0 dropped" in shown
    for side, file, line in zip(("source xx", "target cs"), files["old"], TRAIN[0], strict=True):
        assert f"{side}, from {file}: {line}\n" in shown
    train, translate, score = commands(shown)
    paste(train, "--cpu --encoder-layers 1 --decoder-layers 1 --max-update 1 --warmup-updates 1")
    assert [path.name for path in (out / "checkpoints").glob("*best.pt")] == ["checkpoint_best.pt"]
    paste(translate)
    assert "5 sentences" in paste(score)
    for split, of in (("train", TRAIN[:56]), ("valid", VALID)):
        for side, language in enumerate(("xx", "cs")):
            lines = read_texts(out / "bin" / f"{split}.xx-cs.{language}", out / "bin" / f"dict.{language}.txt")
            assert lines == [pair[side] for pair in of]
    assert (out / "reference" / "test.xx").read_bytes() == text([*(one for one, _ in TRAIN[56:]), "No other side."])
    assert prepare(*flags) == 0
    shown = capsys.readouterr().out
    assert (
        f"{out}: was made with the same settings from files with the same content; existing parts are reused" in shown
    )
    assert "data: reusing" in shown and commands(shown) == [train, translate, score]
    assert prepare(*flags, "--ratio", 2) == 2
    assert "was made with rules (ratio) 3.0, not 2.0" in capsys.readouterr().err
    other = tmp_path / "other" / files["old"][0].name
    other.parent.mkdir()
    other.write_bytes(text([one.replace("old", "odd") for one, _ in TRAIN[:40]]))
    assert prepare("--train", other, files["old"][1], *flags[3:]) == 2
    assert "was made with files (train, 1, 1) old.source of " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--train {a} {b}", "give --valid and --test, or --hold-out N"),
        ("--train {a} {b} --valid {a} {b}", "give --test, or --hold-out N"),
        ("--train {a} {b} --valid {a} {b} --test {a} {b} --hold-out 2", "--hold-out 2: valid and test are given"),
        ("--train {a} nowhere --hold-out 2", "nowhere: there is no such file"),
        ("--train {a} {short} --hold-out 2", "they are not a parallel text"),
        ("--train {a} {b} --hold-out 2 -t xx", "-s xx -t xx: give two names"),
        ("--train {a} {b} --hold-out 2 -t pt-br", "--target-lang pt-br: must be letters, digits or _"),
        ("--train {a} {b} --hold-out 2 --ratio 0", "--ratio 0.0: must be 1 or more"),
        ("--train {a} {b} --hold-out 2 --ratio inf", "--ratio inf: must be 1 or more, and finite"),
        ("--train {a} {b} --hold-out 2 --coverage nan", "--coverage nan: must be above 0 and at most 1"),
        ("--train {a} {b} --hold-out 40", "--hold-out 40: the training text has only 40 pairs; give a smaller"),
        ("--train {a}", "--train: expected 2 arguments"),
        ("--train {a} {a} --hold-out 2", "the same file is given as the source and as the target"),
        ("--train {a} {b} --hold-out 2 --out {a}", "old.source: that is a file; name a new folder"),
        ("--train {a} {b} --hold-out 2 --out a:b", "--out a:b: fairseq takes : for the end of a folder's name"),
        ("--train {a} {b} --hold-out 2 --vocabulary-size 5", "SentencePiece cannot learn --vocabulary-size 5: "),
        ("--train {a} {b} --hold-out 2 --ratio 1 --longest 1", "no training pair is left; dropped are longer than 1"),
        ("--train {a} {wide} --hold-out 2", "wide, line 1: is UTF-16LE, not UTF-8; convert it: iconv -f UTF-16LE"),
        ("--train {a} {none} --hold-out 2", "none: has no text"),
        ("--train {none} {blank} --hold-out 2", "none: has no text"),
        ("--train {a} {b} --valid {none} {blank} --hold-out 2", "none: has no text"),
        ("--train {a} {b} --valid {b} {a} --hold-out 2", "looks like the training text's target; are the files swap"),
        ("--train {a} {b} --train {b} {a} --hold-out 2", "looks like the training text's target; are the files swap"),
        ("--train {a} {b} --valid {b} {a} --hold-out 2", "If they are not, add --not-swapped"),
        ("--train {a} {b} --valid {a} {b} --valid {a} {b} --hold-out 2", ": is given twice; give it once"),
        ("--train {a} {b} --train {a} {b} --hold-out 2", "is given twice; give it once"),
    ],
)
def test_what_cannot_be_prepared_is_refused_in_one_line_and_leaves_nothing(files, tmp_path, capsys, flags, said):
    a, b = files["old"]
    (tmp_path / "none").write_text("\n" * (40 if "{a} {none}" in flags else 0))
    (tmp_path / "blank").touch()
    (tmp_path / "wide").write_bytes(("ano\n" * 40).encode("utf-16-le"))
    names = {
        "a": a,
        "b": b,
        "short": files["valid"][1],
        **{name: tmp_path / name for name in ("none", "blank", "wide")},
    }
    given = [part.format(**names) for part in flags.split()]
    defaults = {"--workers": 1, "-s": "xx", "-t": "cs", "--out": tmp_path / "out"}
    assert said in refused(capsys, "prepare", *with_defaults(given, defaults))
    assert not (tmp_path / "out").exists()


def test_after_a_refusal_other_files_of_a_folder_are_kept(files, tmp_path, capsys):
    flags = ["--train", *files["old"], *LANGUAGES, "--hold-out", 2, "--vocabulary-size", 80, "--out", tmp_path]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine").touch()
    before = sorted(tmp_path.rglob("*"))
    assert prepare(*flags, "--ratio", 1, "--longest", 1) == 2
    assert sorted(tmp_path.rglob("*")) == before
    capsys.readouterr()
    assert prepare(*flags) == 0
    assert f"{tmp_path}: has other files, which stay as they are\n" in capsys.readouterr().out
    assert prepare(*flags, "--ratio", 1) == 2
    assert (tmp_path / "bin").exists()


@pytest.mark.parametrize(
    ("languages", "names", "said"),
    [
        ("xx cs", "a.cs a.xx", "their names say that the source is not xx"),
        ("xx cs", "a.txt a.xx.gz", "their names say that the source is not xx"),
        ("xx cs", "a.cs a.txt", "their names say that the source is not xx"),
        ("fr de", "a.en a.de", "-s fr: {0} says en by its name; give -s en, or rename the file"),
        ("en fr", "a.en a.de.gz", "-t fr: {1} says de by its name; give -t de, or rename the file"),
        ("en de", "a.lc b.lc", None),
        ("en_gb de", "a.en a.de", None),
        ("en de", "a.txt a.tgt", None),
    ],
)
def test_files_named_after_another_language_are_refused(languages, names, said, tmp_path):
    files = [tmp_path / name for name in names.split()]
    for path in files:
        path.touch()
    with nullcontext() if said is None else pytest.raises(UsageError, match=re.escape(str(said).format(*files))):
        check_text_files(tuple(files), tuple(languages.split()))

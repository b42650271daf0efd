"""New data in the pieces and dictionaries of old: distillation, and more text for a trained model."""

import shutil
from pathlib import Path

import pytest
import sentencepiece
from fairseq.data import Dictionary

from corpus_files import pairs, write_pairs
from fairseq_luna.__main__ import main
from fairseq_luna.commands.shell_commands import shell
from own_command import refused, shown
from pasted import commands, paste
from reader_data import read_words

pytestmark = pytest.mark.usefixtures("fairseq_in_forks")

OLD, NEW = pairs(80, 1), [("Readers read, those re-read.", "Leserinnen lesen."), *pairs(30, 7)]
SMALL = "--cpu --encoder-layers 1 --decoder-layers 1 --max-update 2 --warmup-updates 1"


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A folder that prepare made, and beside it the text: train and, of other sentences, new."""
    folder = tmp_path_factory.mktemp("old")
    write_pairs(folder, "train", OLD)
    write_pairs(folder, "new", NEW)
    assert prepare(folder, "train", "--vocabulary-size", 90, "--out", folder / "data") == 0
    return folder


def prepare(folder, stem, *flags):
    texts = (folder / f"{stem}.en", folder / f"{stem}.de")
    flags = ("--train", *texts, "--hold-out", 4, "-s", "en", "-t", "de", "--workers", 1, *flags)
    return main(["prepare", *map(str, flags)])


def pieces_of(folder):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "joint.model"))
    return processor, [processor.id_to_piece(number) for number in range(3, len(processor))]


def test_every_piece_is_in_the_dictionary_and_text_is_cut_into_those_of_the_training_text(old):
    processor, pieces = pieces_of(old / "data")
    words = Dictionary.load(str(old / "data" / "bin" / "dict.en.txt"))
    assert {*pieces} <= {*words.symbols} and len(words) % 8 == 0
    assert words.count[words.nspecial :] == sorted(words.count[words.nspecial :], reverse=True)
    seen = {word for side in ("en", "de") for line in binarized(old / "data", "train", side) for word in line.split()}
    assert {piece for piece in pieces if words.count[words.index(piece)]} == seen
    # Otherwise the text would be too small to tell.
    assert any(len(piece) > 1 and piece not in seen for piece in pieces)
    for line, _ in NEW:
        cut = processor.encode(line, out_type=str)
        assert {piece for piece in cut if len(piece) > 1} <= seen


def binarized(data, split, language):
    return read_words(data / "bin" / f"{split}.en-de.{language}", data / "bin" / f"dict.{language}.txt")


def test_new_data_of_an_old_model(old, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = old / "data"
    dictionaries = [data / "bin" / f"dict.{language}.txt" for language in ("en", "de")]
    flags = ("--pieces", data / "joint.model", "--dictionary", *dictionaries, "--out", "new")
    assert prepare(old, "new", *flags) == 0
    train, translate, score = commands(capsys.readouterr().out)
    for language in ("en", "de"):
        assert Path(f"new/bin/dict.{language}.txt").read_bytes() == dictionaries[0].read_bytes()
    assert Path("new/joint.model").read_bytes() == (data / "joint.model").read_bytes()
    assert "--share-all-embeddings" in train
    paste(train, SMALL)
    paste(translate)
    assert "4 sentences" in paste(score)
    # A model of the old data goes on with the new.
    assert "finished" not in paste(
        f"{train} {SMALL} --save-dir more --finetune-from-model new/checkpoints/checkpoint_best.pt"
    )
    assert prepare(old, "new", *flags) == 0
    assert "data: reusing" in capsys.readouterr().out
    assert "was made with --dictionary " in refused(
        capsys,
        *("prepare", "--train", old / "new.en", old / "new.de", "--hold-out", 4, "-s", "en", "-t", "de"),
        *("--pieces", data / "joint.model", "--out", "new"),
    )


def test_old_dictionaries_that_lack_pieces_restrict_the_model_of_each_side(old, tmp_path, capsys):
    """As fairseq-preprocess made them, a dictionary for each language."""
    data = old / "data"
    files = []
    for language in ("en", "de"):
        words, kept = Dictionary.load(str(data / "bin" / "dict.en.txt")), Dictionary()
        for word in {word for line in binarized(data, "train", language) for word in line.split()}:
            kept.add_symbol(word, words.count[words.index(word)])
        kept.finalize()
        files.append(tmp_path / f"dict.{language}.txt")
        kept.save(str(files[-1]))
    shutil.copy(data / "work" / "sentencepiece" / "joint.model", tmp_path / "old.model")  # with all pieces
    out = tmp_path / "new"
    assert prepare(old, "new", "--pieces", tmp_path / "old.model", "--dictionary", *files, "--out", out) == 0
    said = capsys.readouterr().out
    assert "--share-all-embeddings" not in said and "--share-decoder-input-output-embed" in said
    for language, file in zip(("en", "de"), files, strict=True):
        words = Dictionary.load(str(file))
        assert (out / "bin" / f"dict.{language}.txt").read_bytes() == file.read_bytes()
        lines = (out / "work" / "clean" / f"train.{language}").read_text(encoding="utf-8").splitlines()
        cut = {piece for line in lines for piece in line.split()}
        assert {piece for piece in cut if len(piece) > 1 and piece != "<unk>"} <= {*words.symbols}
        lacking = sum(piece not in words or piece == "<unk>" for line in lines for piece in line.split())
        assert (f"unknown tokens in train.{language}: " in said) == bool(lacking)
    assert "unknown tokens in train.en: " in said
    processor, _ = pieces_of(out)
    english = Dictionary.load(str(files[0]))
    assert {piece for piece in processor.encode(OLD[0][1], out_type=str) if len(piece) > 1} <= {*english.symbols}


def test_pieces_alone_get_a_dictionary_of_their_own(old, tmp_path):
    out = tmp_path / "new"
    assert prepare(old, "new", "--pieces", old / "data" / "joint.model", "--out", out) == 0
    _, pieces = pieces_of(out)
    assert {*pieces} <= {*Dictionary.load(str(out / "bin" / "dict.en.txt")).symbols}


def test_distillation_in_two_commands(old, tmp_path, monkeypatch, capsys):
    """The teacher's translations of its training text become the targets, in the same pieces."""
    monkeypatch.chdir(tmp_path)
    data = shutil.copytree(old / "data", "data")
    assert prepare(old, "train", "--vocabulary-size", 90, "--out", "data") == 0
    paste(commands(capsys.readouterr().out)[0], SMALL)
    source = "data/work/raw/train.en"
    flags = ("--beam", 1, "--max-len-b", 9)
    paste(f"{shell('fairseq-luna', 'translate', 'data/checkpoints', *flags)} < {source} > distilled.de")
    held_out = (f"--{split} data/reference/{split}.en data/reference/{split}.de" for split in ("valid", "test"))
    said = paste(
        f"{shell('fairseq-luna', 'prepare')} --train {source} distilled.de {' '.join(held_out)}"
        " -s en -t de --workers 1 --ratio 99 --pieces data/joint.model"
        " --dictionary data/bin/dict.en.txt data/bin/dict.de.txt --out distilled"
    )
    assert "unknown tokens in" not in said
    assert binarized(Path("distilled"), "test", "de") == binarized(Path(data), "test", "de")
    assert {*binarized(Path("distilled"), "train", "en")} <= {*binarized(Path(data), "train", "en")}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--dictionary {dict}", "give its SentencePiece model, too, with --pieces"),
        ("--pieces {model} --dictionary {dict} {dict} {dict}", "give one file, or the files of two languages"),
        ("--pieces {model} --vocabulary-size 90", "--vocabulary-size 90: is for new pieces; leave it or --pieces out"),
        ("--pieces {model} --coverage 1", "--coverage 1.0: is for new pieces; leave it or --pieces out"),
        ("--pieces nowhere", "nowhere: there is no such file"),
        ("--pieces {dict}", "dict.en.txt: is not a SentencePiece model, or cannot be read"),
        ("--pieces {model} --dictionary {de} {dict}", "dict.de.txt: its name says de; give the dictionary of en first"),
        ("--pieces {model} --dictionary nowhere", "nowhere: there is no such file"),
        ("--pieces {model} --dictionary {model}", "joint.model: is not a fairseq dictionary"),
        ("--pieces {model} --dictionary {other}", "0% of its words are pieces of --pieces "),
        ("--pieces {model} --dictionary {empty}", "empty: has no words"),
    ],
)
def test_pieces_that_cannot_be_used_are_refused(old, tmp_path, capsys, flags, said):
    (tmp_path / "other").write_text("".join(f"zoo{number} 9\n" for number in range(20)))
    (tmp_path / "empty").touch()
    names = {"model": old / "data" / "joint.model", "dict": old / "data" / "bin" / "dict.en.txt"}
    names["de"] = tmp_path / "dict.de.txt"
    names["de"].write_text("one 1\n")
    names |= {name: tmp_path / name for name in ("other", "empty")}
    given = [part.format(**names) for part in flags.split()]
    texts = ("--train", old / "new.en", old / "new.de", "--hold-out", 4, "-s", "en", "-t", "de")
    assert said in refused(capsys, "prepare", *texts, "--out", tmp_path / "out", *given)
    assert not (tmp_path / "out").exists()


def test_held_out_pairs_in_the_training_text_are_said_and_left_out(old, tmp_path, capsys):
    repeated = [*OLD[:40], *OLD[:4], *OLD[40:44]]
    write_pairs(tmp_path, "train", repeated)
    flags = ("-s", "en", "-t", "de", "--train", tmp_path / "train.en", tmp_path / "train.de", "--hold-out", 4)
    flags = ("prepare", *flags, "--workers", 1, "--vocabulary-size", 80)
    said = shown(capsys, *flags, "--out", tmp_path / "with")
    assert "valid: 4 of 4 pairs also stand in the training text, and 4 of the sources\n" in said
    assert "\ntest: " not in said
    assert "--leave-out pairs (or sources) keeps them out of the training text" in said
    said = shown(capsys, *flags, "--leave-out", "pairs", "--out", tmp_path / "without")
    assert "36 kept, 4 dropped; pairs of valid or test: 4\n" in said and "also stand" not in said
    assert len(binarized(tmp_path / "without", "train", "en")) == 36

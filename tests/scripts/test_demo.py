"""The demo's corpus is the same bytes everywhere; a short run goes from nothing to a score, and another reuses it."""

import hashlib
import shlex
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import demo
import demo_corpus
from forks import Fork
from pasted import paste, run_module
from recipes import build, of_flags, write_dictionaries


def test_the_corpus_is_the_same_everywhere_and_no_english_sentence_is_repeated(tmp_path):
    demo_corpus.write(tmp_path)
    digest = hashlib.sha256()
    for file in sorted(tmp_path.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    # Of right German: declension, conjugation and numbers were tested form by form when this was recorded.
    assert digest.hexdigest() == "fbb9990a5aeb699794070164cd7291414d65a6f61ca7ec1b511525934800f32c"
    parts = {name: (tmp_path / f"{name}.en").read_text().splitlines() for name in demo_corpus.SIZES}
    assert {name: len(lines) for name, lines in parts.items()} == demo_corpus.SIZES
    assert len({line for part in parts.values() for line in part}) == sum(demo_corpus.SIZES.values())
    one, other = (list(islice(demo_corpus.sentences(seed), 20)) for seed in (1, 2))
    assert not set(one) & set(other)


def test_a_folder_of_other_flags_is_not_trained_on(tmp_path):
    demo.keep_command(tmp_path, "--lr 1")
    demo.keep_command(tmp_path, "--lr 1")
    with pytest.raises(demo.CommandError, match=r"flags\.txt: use another --folder"):
        demo.keep_command(tmp_path, "--lr 2")


def test_progress_is_shortened(capsys):
    demo.show_progress("2026 | INFO | train_inner | epoch 001: 100 / 900 loss=5.1, ppl=9, wps=812, num_updates=100")
    demo.show_progress("2026 | INFO | fairseq.tasks | [en] dictionary: 1600 types")
    assert capsys.readouterr().out == "  update   100: loss 5.1, 812 target tokens a second\n"


@pytest.mark.parametrize("arch", demo.ARCHITECTURES)
def test_every_architecture_is_one_of_fairseqs_or_ours(arch, tmp_path):
    write_dictionaries(tmp_path, 40, "dict.en.txt", "dict.de.txt")
    flags = (demo.ARCHITECTURES[arch], demo.RECIPE, "-s en -t de --total-num-update 3")
    model, _ = build(of_flags(tmp_path, *(flag for some in flags for flag in shlex.split(some))))
    assert model.encoder.layers[0].normalize_before


SIZES = {"train": 3000, "valid": 50, "test": 50}


@pytest.fixture
def small(fairseq_in_forks, tmp_path, monkeypatch):
    """The demo with a smaller corpus and what it runs in forks of this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for split, size in SIZES.items():
        monkeypatch.setitem(demo_corpus.SIZES, split, size)

    def run_in_fork(*words):
        of_corpus = words[0] == demo.CORPUS
        fork = Fork(partial(demo_corpus.write, words[1]) if of_corpus else partial(run_module, [*map(str, words)]))
        print(fork.stdout.read())
        assert fork.wait() == 0

    monkeypatch.setattr(demo, "run", run_in_fork)
    return lambda: demo.main(["--folder", "kept", "--max-update", "3"])


def programs(printed):
    """The programs of the commands that were shown."""
    return [Path(shlex.split(line)[1]).name for line in printed.splitlines() if line.startswith("$ ")]


@pytest.mark.slow
def test_a_short_demo_runs_to_the_end_and_then_reuses_everything(small, tmp_path, capsys):
    assert small() == 0
    first = capsys.readouterr().out
    assert programs(first)[1:] == ["fairseq-luna", "fairseq-train", "fairseq-generate", "fairseq-luna"]
    fairseqs = [line for line in first.splitlines() if line.startswith("$ ") and "fairseq-luna" not in line]
    assert all("-s en -t de" in line for line in fairseqs[-2:])  # so that the checkpoint knows its direction
    assert "  perplexity of the validation set " in first and "BLEU" in first
    assert f"of {SIZES['test']} translations are the reference" in first
    assert (tmp_path / "kept" / "luna_tiny-3-updates-seed-1" / "checkpoint_last.pt").exists()
    assert small() == 0
    second = capsys.readouterr().out
    assert programs(second)[1:] == ["fairseq-luna", "fairseq-luna"]
    line = [line for line in second.splitlines() if "fairseq-luna translate" in line][-1]
    assert len(paste(line.strip()).splitlines()) == 1

"""Every command of scripts/measure_on_gpu.sh is one that its program takes. The programs do not run here."""

import os
import shlex
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import torch
from fairseq import options, tasks
from omegaconf import OmegaConf

import benchmark
import prepare_corpus
from benchmarks.flags import check_common
from fairseq_luna.__main__ import parser_of
from fairseq_luna.commands.converting.converted_checkpoint import convert_checkpoint
from recipes import ROOT, build, parsed, quoted, write_dictionaries

# hydra announces future strictness for every config.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SCRIPT, SCORE = "scripts/measure_on_gpu.sh", "examples/score.sh"
STEPS = ("exact", "generate", "train", "epoch", "tests", "multi30k", "documents")
# Instead of each program, one that writes down its words.
NOTE = '#!/usr/bin/env bash\n{{ printf "%s" {}; printf "\\037%s" "$@"; echo; }} >> "$NOTES"\n'


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """The words of every command that the script runs."""
    folder = tmp_path_factory.mktemp("measured")
    for name in ("python", "fairseq-hydra-train", SCORE):
        program = folder / (name if "/" in name else f"bin/{name}")
        program.parent.mkdir(exist_ok=True)
        program.write_text(NOTE.format(name))
        program.chmod(0o755)
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / SCRIPT, folder / SCRIPT)
    notes = folder / "notes"
    env = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "NOTES": str(notes),
        "JOBS": "1",
        "SEEDS": "1",
    }
    ended = subprocess.run([folder / SCRIPT], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {file.name for file in (folder / "outputs" / "gpu").glob("*.log")} == {f"{step}.log" for step in STEPS}
    return [line.split("\037") for line in notes.read_text().splitlines()]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_dictionaries(folder, 40, "dict.en.txt", "dict.de.txt")
    (folder / "train.en-de.en.idx").touch()
    return folder


def of(commands, *beginning):
    """The words after these of the commands that begin with them."""
    found = [words[len(beginning) :] for words in commands if words[: len(beginning)] == [*beginning]]
    assert found, shlex.join(beginning)
    return found


@pytest.fixture(scope="module")
def trainings(commands, data):
    """The configs of the trainings by their folder, with ``data`` in place of theirs."""
    found = {}
    for words in of(commands, "fairseq-hydra-train"):
        places = [f"task.data={quoted(str(data))}" if word.startswith("task.data=") else word for word in words]
        places[places.index("--config-dir") + 1] = str(ROOT / "examples" / "config")
        cfg = parsed(*places)
        found[cfg.checkpoint.save_dir.removeprefix("outputs/gpu/")] = cfg
    return found


def test_every_program_is_checked_here(commands):
    programs = {tuple(words[: 3 if words[1] == "-m" else 2]) for words in commands if words[0] == "python"}
    scripts = {("python", "scripts/benchmark.py"), ("python", "scripts/prepare_corpus.py")}
    assert programs == {("python", "-m", "pytest"), ("python", "-m", "fairseq_luna"), *scripts}
    assert {words[0] for words in commands} == {"python", "fairseq-hydra-train", SCORE}


def test_pytest_takes_its_flags_and_finds_the_files(commands, pytestconfig):
    files = []
    for words in of(commands, "python", "-m", "pytest"):
        given = pytestconfig._parser.parse(words)
        assert given.device == "cuda" and given.numprocesses == 1
        files += [*given.file_or_dir, *(given.ignore or ())]
    assert len(files) > 10 and [file for file in files if not (ROOT / file).exists()] == []


def test_what_is_measured_can_be(commands, tmp_path):
    for words in of(commands, "python", "scripts/benchmark.py"):
        args = benchmark.parse(words)
        assert args.device == "cuda"
        args.device, args.json = "cpu", tmp_path / args.json.name
        check_common(args)
        args.device = "cuda"
        chosen = benchmark.COMMANDS[args.command]
        if hasattr(chosen, "check"):
            chosen.check(args)


def test_the_corpus_is_prepared(commands, monkeypatch):
    class Parsed(Exception):
        pass

    def stop(*_):
        raise Parsed

    monkeypatch.setattr(prepare_corpus, "provenance", SimpleNamespace(check_provenance=stop))
    for words in of(commands, "python", "scripts/prepare_corpus.py"):
        with pytest.raises(Parsed):
            prepare_corpus.main(words)


def test_every_training_composes_and_builds(trainings):
    assert len(trainings) == 16  # of Multi30k 3 epochs and 5 systems, of documents 3 stages and 5 systems
    for cfg in trainings.values():
        build(cfg)


def test_what_is_trained_is_translated_and_scored(commands, trainings, data):
    for _, save_dir, *flags in of(commands, SCORE):
        assert save_dir.removeprefix("outputs/gpu/") in trainings
        parser = options.get_generation_parser()
        args = options.parse_args_and_arch(parser, [str(data), "--path", "x.pt", *flags])
        assert not flags or args.max_len_a == 1.3


def model_of(cfg):
    return tasks.setup_task(cfg.task).build_model(cfg.model)


def test_a_transformer_is_converted_to_the_model_that_is_trained_next(commands, trainings, data):
    conversions = of(commands, "python", "-m", "fairseq_luna", "convert")
    cfg, old = trainings["start_512"], data / "old.pt"
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 1}
    state = {"args": None, "cfg": OmegaConf.to_container(cfg), "model": model_of(cfg).state_dict()}
    extra = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
    torch.save({**state, "optimizer_history": [history], "extra_state": extra}, old)
    for words in conversions:
        given = vars(parser_of("convert", words).parse_args(words))
        before, arch, output = (given.pop(name) for name in ("checkpoint", "arch", "output"))
        assert str(before) == f"{cfg.checkpoint.save_dir}/checkpoint_last.pt"
        [after] = [each for each in trainings.values() if each.checkpoint.finetune_from_model == str(output)]
        del given["force"]
        made = convert_checkpoint(old, arch, given, seed=given.pop("seed"))
        model_of(after).load_state_dict(made.state["model"], strict=True, model_cfg=after.model)
    assert len(conversions) == 4

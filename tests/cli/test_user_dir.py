"""The plugin in a checkout, another folder or site-packages, and under hydra: commands as processes."""

import os
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


@pytest.mark.parametrize(("user_dir", "folder"), [("fairseq_luna", REPOSITORY), (USER_DIR, "/")], ids=["name", "path"])
def test_from_the_checkout_by_its_name_and_from_another_folder_by_its_path(tiny_data, tmp_path, user_dir, folder):
    result = train(tiny_data, tmp_path, user_dir, folder)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "checkpoint_last.pt").exists()


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

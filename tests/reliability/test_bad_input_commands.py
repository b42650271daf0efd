"""Bad input to the commands as they are started from a shell, where Python and hydra print what ends them."""

import os
import subprocess
import sys

import pytest
import yaml
from commands import APOLLO, FAMILIES, USER_DIR

pytestmark = pytest.mark.slow


def ends_in_one_line(command, *arguments, folder, said):
    ended = subprocess.run(
        [sys.executable, "-m", f"fairseq_cli.{command}", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 1, ended.stdout
    assert "Traceback" not in ended.stderr, ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("fairseq_luna: error: "))
    assert said in line


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("model", {"projection_lenght": 3}, "Key 'projection_lenght' not in 'LunaConfig'"),
        ("optimizer", {"_name": "apolo"}, "--optimizer apolo: no such choice"),
    ],
    ids=["misspelt-key", "name"],
)
def test_hydra(tiny_data, tmp_path, part, change, said):
    config = {
        "common": {"user_dir": USER_DIR, "cpu": True},
        "checkpoint": {"save_dir": str(tmp_path / "run")},
        "task": {"_name": "translation", "data": tiny_data, "source_lang": "a", "target_lang": "b"},
        "dataset": {"batch_size": 8, "num_workers": 0, "disable_validation": True},
        "criterion": {"_name": "label_smoothed_cross_entropy"},
        "optimization": {"max_update": 1, "lr": [0.01]},
        "optimizer": {"_name": "apollo"},
        "lr_scheduler": {"_name": "fixed"},
        "model": {"_name": "luna", "encoder_embed_dim": 16, "encoder_layers": 1, "projection_length": 8},
    }
    config[part] |= change
    (tmp_path / "luna.yaml").write_text("# @package _group_\n" + yaml.safe_dump(config), encoding="utf-8")
    ends_in_one_line("hydra_train", f"--config-dir={tmp_path}", "--config-name=luna", folder=tmp_path, said=said)
    assert not (tmp_path / "run" / "checkpoint_last.pt").exists()


def test_what_fairseq_itself_refuses(tiny_data, tmp_path):
    flags = (f"--user-dir={USER_DIR}", f"--save-dir={tmp_path}", "--cpu", *FAMILIES["luna"], *APOLLO)
    more = ("--batch-size=8", "--train-subset=trian")
    said = f"{tiny_data} holds no split trian"
    ends_in_one_line("train", tiny_data, *flags, *more, folder=tmp_path, said=said)

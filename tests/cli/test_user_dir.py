"""The plugin by its name in a checkout and by its path elsewhere: commands as processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import APOLLO, FAMILIES, USER_DIR, arguments

pytestmark = pytest.mark.slow

REPOSITORY = Path(USER_DIR).parent


@pytest.mark.parametrize(("user_dir", "folder"), [("fairseq_luna", REPOSITORY), (USER_DIR, "/")], ids=["name", "path"])
def test_from_the_checkout_by_its_name_and_from_another_folder_by_its_path(tiny_data, tmp_path, user_dir, folder):
    """The plugin is found by --user-dir alone."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    flags = (*FAMILIES["luna"], *APOLLO, "--max-update=2", "--disable-validation", f"--user-dir={user_dir}")
    command = [sys.executable, "-m", "fairseq_cli.train", *arguments(tiny_data, tmp_path, *flags)]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "checkpoint_last.pt").exists()

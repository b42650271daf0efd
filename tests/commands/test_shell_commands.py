"""Steps leave no incomplete results."""

import subprocess
import sys

import pytest

from fairseq_luna.commands import shell_commands
from fairseq_luna.files import atomic_write, locked, make_unless_present
from fairseq_luna.usage_error import UsageError


def test_a_failing_command_is_named_with_its_log(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(UsageError, match=r"(?s)^fairseq-train ended with status 2; .*--arch"):
        shell_commands.run_fairseq("train", [str(tmp_path), "--arch", "no_such_arch"], log)


def test_preprocess_has_the_patches(tmp_path):
    """Without them merged parts of more than 2 GiB a side are written wrongly."""
    for language in ("a", "b"):
        (tmp_path / f"train.{language}").write_text("w\n" * 4)
    flags = ["--source-lang=a", "--target-lang=b", "--workers=2", f"--trainpref={tmp_path}/train"]
    shell_commands.run_fairseq("preprocess", [*flags, f"--destdir={tmp_path}/bin"], tmp_path / "log")
    assert f"user_dir='{shell_commands.USER_DIR}'" in (tmp_path / "log").read_text()
    assert (tmp_path / "bin" / "train.a-b.a.idx").exists()


def test_the_remains_of_a_killed_step_are_removed(tmp_path):
    left = tmp_path / "thing.unfinished"
    left.mkdir()
    (left / "half").touch()

    def make(path):
        path.mkdir()
        (path / "whole").touch()

    make_unless_present("thing", tmp_path / "thing", make)
    assert [path.name for path in (tmp_path / "thing").iterdir()] == ["whole"]
    assert not left.exists()


def test_two_processes_do_not_write_the_same_thing(tmp_path):
    with atomic_write(tmp_path / "thing") as first:
        first.mkdir()
        with (
            pytest.raises(UsageError, match="thing: another process is making it; wait"),
            atomic_write(tmp_path / "thing"),
        ):
            pass
        (first / "whole").touch()  # the other process has removed nothing
    assert [path.name for path in tmp_path.rglob("*")] == ["thing", "whole"]


def test_a_killed_process_leaves_no_lock(tmp_path):
    code = "import os, sys; from pathlib import Path; from fairseq_luna.files import locked\n"
    code += "with locked(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, tmp_path / "thing"], check=False)
    assert (tmp_path / "thing.lock").exists()
    with locked(tmp_path / "thing") as alone:
        assert alone
    assert list(tmp_path.iterdir()) == []


def test_commands_of_this_environment_are_found_by_any_shell(tmp_path, monkeypatch):
    programs = tmp_path / "a b" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "fairseq-train"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setattr(shell_commands.sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    assert shell_commands.program("fairseq-train") == "'a b/bin/fairseq-train'"
    assert shell_commands.program("no-such-program") == "no-such-program"
    assert shell_commands.shown_path(tmp_path / "my data") == "'my data'"
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    assert shell_commands.program("fairseq-train") == "fairseq-train"

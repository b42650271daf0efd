"""Commands that train by the scripts of examples/."""

from pathlib import Path

from fairseq_luna.commands.steps import USER_DIR, program, shown_path


def recipe(name: str, data: Path, *arguments: str, **settings: object) -> str:
    """A command to paste that trains on ``data`` by examples/``name``/train.sh, with checkpoints beside the data."""
    settings |= {"DATA": shown_path(data), "SAVE_DIR": shown_path(data.parent / "checkpoints")}
    if (python := program("python")) != "python":
        settings["PYTHON"] = python
    script = shown_path(USER_DIR.parent / "examples" / name / "train.sh")
    return " ".join([*(f"{key}={value}" for key, value in settings.items()), script, *arguments])

"""Build the model of every recipe of a folder, train none, and print its parameters beside the paper's.

    python scripts/dry_run.py examples/wmt14_en_de [ROW ...]

Each row of the folder's paper.yaml is a script ROW.sh and a config/ROW.yaml. Both are read by fairseq's own commands,
and must come to the same settings. Exits with 1 where they do not, or where the parameters are not the paper's.
"""

import argparse
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

if __name__ == "__main__":  # before fairseq is imported, which says much
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

from recipe_model import build, count_parameters, plain_settings, write_dictionaries
from recipe_settings import (
    USER_DIR,
    RecipeRefused,
    command_settings,
    script_command,
    yaml_settings,
)

GPUS = 8
# The paper gives millions with one decimal.
TOLERANCE = 0.1
# The script keeps a log beside its checkpoints; with YAML that is common.log_file, which the user gives.
MAY_DIFFER = {"common.log_file"}
HEADINGS = (
    "row",
    "from",
    "parameters",
    "paper",
    "difference",
    f"tokens/update on {GPUS} GPUs",
    "optimizer",
    "schedule",
)


class Recipe(NamedTuple):
    """A row, as its script or its YAML has it."""

    row: str
    source: str
    parameters: int
    paper: float | None
    settings: dict[str, Any]

    @property
    def difference(self) -> float | None:
        """Of the parameters from the paper's, in millions."""
        return None if self.paper is None else self.parameters / 1e6 - self.paper

    @property
    def tokens_an_update(self) -> int:
        processes = self.settings["distributed_training.distributed_world_size"]
        (batches,) = self.settings["optimization.update_freq"]
        return processes * self.settings["dataset.max_tokens"] * batches


def recipes(folder: Path, rows: Sequence[str] = ()) -> Iterator[Recipe]:
    """Two for each row, its script's and its YAML's; of all rows, or of those named.

    Raises:
        RecipeRefused: if the script or one of fairseq's commands does not take the settings.
        UsageError: if the model, the optimizer or the schedule does not; the plugin prints it in one line.
    """
    paper = _paper(folder)
    unknown = set(rows) - set(paper.rows)
    if unknown:
        raise RecipeRefused(f"no row of {folder} is called {', '.join(sorted(unknown))}: {', '.join(paper.rows)}")
    with tempfile.TemporaryDirectory() as data:
        write_dictionaries(Path(data), paper.vocabulary, tuple(paper.languages))
        for row in rows or paper.rows:
            for source, cfg in _configs(folder, row, data):
                model = build(cfg).model
                figure = paper.rows[row].get("parameters")
                yield Recipe(row, source, count_parameters(model), figure, plain_settings(cfg, model))


def disagreements(script: Recipe, yaml: Recipe) -> list[str]:
    """What is wrong with a row, a line for each thing."""
    names = (script.settings.keys() | yaml.settings.keys()) - MAY_DIFFER
    absent = object()
    found = [
        f"{script.row}: {name} is {script.settings.get(name)!r} in the script, {yaml.settings.get(name)!r} in YAML"
        for name in sorted(names)
        if script.settings.get(name, absent) != yaml.settings.get(name, absent)
    ]
    if script.difference is not None and abs(script.difference) > TOLERANCE:
        found.append(f"{script.row}: {script.parameters} parameters, but {script.paper} million in the paper")
    return found


def _paper(folder: Path) -> DictConfig:
    file = folder / "paper.yaml"
    if not file.is_file():
        raise RecipeRefused(f"there is no {file}: give a folder of recipes, such as examples/wmt14_en_de")
    return OmegaConf.load(file)


def _configs(folder: Path, row: str, data: str) -> Iterator[tuple[str, DictConfig]]:
    script, config = folder / f"{row}.sh", folder / "config" / f"{row}.yaml"
    for file in (script, config):
        if not file.is_file():
            raise RecipeRefused(f"paper.yaml has the row {row}, but there is no {file}")
    unset = dict.fromkeys(("MAX_TOKENS", "UPDATE_FREQ", "SAVE_DIR"), "")
    yield "script", command_settings(script_command(script, {**unset, "DATA": data, "GPUS": str(GPUS)}))
    yield "YAML", yaml_settings(config, [f"task.data={data}", f"common.user_dir={USER_DIR}"])


def _cells(recipe: Recipe) -> tuple[str, ...]:
    settings = recipe.settings
    (rate,) = settings["optimization.lr"]
    schedule = f"{settings['lr_scheduler._name']}, warm-up {settings['lr_scheduler.warmup_updates']}"
    if "lr_scheduler.milestones" in settings:
        cuts = " and ".join(map(str, settings["lr_scheduler.milestones"]))
        schedule += f", x {settings['lr_scheduler.lr_decay_rate']} at {cuts}"
    return (
        *(recipe.row, recipe.source, f"{recipe.parameters / 1e6:.2f}M"),
        "" if recipe.paper is None else f"{recipe.paper}M",
        "" if recipe.difference is None else f"{recipe.difference:+.2f}M",
        *(f"{recipe.tokens_an_update:,}", f"{settings['optimizer._name']}, {rate}"),
        f"{schedule}, {settings['optimization.max_update']} updates",
    )


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """In Markdown, its columns aligned."""
    lines = [HEADINGS, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    text.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="such as examples/wmt14_en_de")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these")
    args = parser.parse_args()
    try:
        built = list(recipes(args.folder, args.rows))
    except RecipeRefused as refusal:
        print(f"dry_run.py: {refusal}", file=sys.stderr)
        return 2
    print(table([_cells(recipe) for recipe in built]))
    wrong = [line for pair in zip(built[::2], built[1::2], strict=True) for line in disagreements(*pair)]
    for line in wrong:
        print(f"dry_run.py: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

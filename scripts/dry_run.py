"""Build the model of every row of a paper's table without training it, and compare its parameters with the paper's.

    python scripts/dry_run.py examples/wmt14_en_de [ROW ...]
    python scripts/dry_run.py examples/lra [TASK ...]

The folder's paper.yaml lists the rows. fairseq-train parses the command of `train.sh ROW`, or of `train.sh TASK SYSTEM`
for each system; the model, the optimizer and the schedule are built from it. Tokens per update are of 8 GPUs for WMT14.
Exits with 1 if a row's parameters are more than 0.1 million from the paper's.
"""

import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

if __name__ == "__main__":  # before fairseq is imported, which logs much
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

from fairseq_luna.commands.command_line import CommandError, Parser, command
from recipes.model import build, count_parameters, plain_settings, write_dictionaries
from recipes.settings import command_settings, script_command

GPUS = 8
# The paper gives millions with one decimal.
TOLERANCE = 0.1
HEADINGS = (
    *("row", "parameters counted", "in the paper", "difference", "tokens/update, at most", "optimizer"),
    "schedule",
)


class Recipe(NamedTuple):
    """A row as fairseq-train reads it; ``parameters`` are counted here, ``paper`` is in millions."""

    row: str
    parameters: int
    paper: float | None
    settings: dict[str, Any]

    @property
    def difference(self) -> float | None:
        """Counted parameters minus the paper's, in millions."""
        return None if self.paper is None else self.parameters / 1e6 - self.paper

    @property
    def tokens_per_update(self) -> int:
        processes = self.settings["distributed_training.distributed_world_size"]
        (batches,) = self.settings["optimization.update_freq"]
        texts = (self.settings["dataset.batch_size"] or 0) * self.settings.get("task.max_positions", 0)
        return processes * (self.settings["dataset.max_tokens"] or texts) * batches


def recipes(folder: Path, rows: Sequence[str] = ()) -> Iterator[Recipe]:
    """All rows of ``folder``, or those named.

    Raises:
        CommandError: there is no such row, or the script or fairseq-train refuses its settings.
        UsageError: the model, the optimizer or the schedule refuses them.
    """
    file = folder / "paper.yaml"
    if not file.is_file():
        raise CommandError(f"there is no {file}: give a folder of recipes, such as examples/wmt14_en_de")
    paper = OmegaConf.load(file)
    if unknown := set(rows) - set(paper.rows):
        raise CommandError(f"no row of {folder} is called {', '.join(sorted(unknown))}: {', '.join(paper.rows)}")
    with tempfile.TemporaryDirectory() as data:
        environment = dict.fromkeys(("MAX_TOKENS", "UPDATE_FREQ", "SAVE_DIR"), "")
        environment |= {"DATA": data, "GPUS": str(GPUS), "SETTING": "published"}
        for row in rows or paper.rows:
            figures = paper.rows[row]
            words = figures.get("vocabulary", paper.vocabulary)
            write_dictionaries(Path(data), words, paper.dictionaries)
            for system in paper.get("systems", [""]):
                arguments = f"{row} {system}".split()
                cfg = command_settings(script_command(folder / "train.sh", environment, arguments))
                model = build(cfg).model
                settings = plain_settings(cfg, model)
                yield Recipe(" ".join(arguments), count_parameters(model), figures.get("parameters"), settings)


def cells(recipe: Recipe) -> tuple[str, ...]:
    settings = recipe.settings
    (rate,) = settings["optimization.lr"]
    schedule = f"{settings['lr_scheduler._name']}, warm-up {settings['lr_scheduler.warmup_updates']}"
    if "lr_scheduler.milestones" in settings:
        cuts = " and ".join(map(str, settings["lr_scheduler.milestones"]))
        schedule += f", x {settings['lr_scheduler.lr_decay_rate']} at {cuts}"
    return (
        *(recipe.row, f"{recipe.parameters / 1e6:.2f}M"),
        "" if recipe.paper is None else f"{recipe.paper}M",
        "" if recipe.difference is None else f"{recipe.difference:+.2f}M",
        *(f"{recipe.tokens_per_update:,}", f"{settings['optimizer._name']}, {rate}"),
        f"{schedule}, {settings['optimization.max_update']} updates",
    )


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """In Markdown, its columns aligned."""
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = [HEADINGS, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
    )


@command
def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("folder", type=Path, help="such as examples/wmt14_en_de")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these")
    args = parser.parse_args(arguments)
    built = list(recipes(args.folder, args.rows))
    print(table([cells(recipe) for recipe in built]))
    wrong = [recipe for recipe in built if abs(recipe.difference or 0) > TOLERANCE]
    for recipe in wrong:
        print(
            f"dry_run.py: {recipe.row}: {recipe.parameters} parameters, {recipe.paper}M in the paper", file=sys.stderr
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

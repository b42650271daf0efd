"""The goals for some of the numbers, and whether they are met."""

from argparse import Namespace
from collections.abc import Iterable

from .command import Column, Row
from .models import SMALL, TINY

# Maximum time of Luna's training step over fairseq's transformer's, by length and batch.
TRAINING = {(25, 40): 1.15, (128, 8): 0.90, (512, 2): 0.70, (1024, 1): 0.50, (2048, 1): 0.33}
# Minimum speed of Luna's generation over fairseq's transformer's, by length.
GENERATION = {512: 1.6, 1024: 2.2}
# Maximum time of a late token over an early one, by length.
LATE_TOKEN = {1024: 1.10}
# Systems whose incremental state has the same size at the end as half-way.
CONSTANT_STATE = (
    "luna",
    "luna-untied",
    "luna-softmax-source",
    "luna-convolution",
    "fastformer",
    "fastformer-convolution",
)
# Maximum MiB of a training step of luna_tiny, by length.
TRAINING_MEMORY = {65536: 4096}
# Maximum ratio of the memory for an additional token in the longest and in the shortest sentences; 1 is linear.
GROWTH = 1.05
LINEAR = ("luna", "fastformer")
# Maximum time of Apollo's step over AdamW's, for this many parameters in this many tensors.
APOLLO = 1.3
APOLLO_SIZE = (65_000_000, 200)
# Minimum speed over a step for one tensor after the other, on CUDA.
TOGETHER = 3.0


def at_most(what: str, reached: float | None, wanted: float) -> Row:
    """A goal, the measured value and whether it meets the goal; None does not."""
    return {"goal": f"{what} <= {wanted:g}", "reached": reached, "met": reached is not None and reached <= wanted}


def at_least(what: str, reached: float | None, wanted: float) -> Row:
    return {"goal": f"{what} >= {wanted:g}", "reached": reached, "met": reached is not None and reached >= wanted}


def of_training(row: Row, args: Namespace) -> list[Row]:
    """The goals of a row of ``train``."""
    wanted = TRAINING.get((row["length"], row["batch"]))
    plain = not (args.optimizer != "none" or args.source_length or args.checkpoint_activations)
    compared = args.sizes == SMALL and args.reference == "transformer"
    if row["system"] != "luna" or wanted is None or not (plain and compared):
        return []
    return [at_most("time / transformer", row["ratio"], wanted)]


def of_training_memory(row: Row, args: Namespace) -> list[Row]:
    """The goals of a row of ``train --memory``."""
    if args.sizes._replace(vocabulary=TINY.vocabulary) != TINY:
        return []
    goals = []
    wanted = TRAINING_MEMORY.get(row["length"])
    if row["system"] == "luna" and wanted is not None:
        goals.append(at_most("peak MiB", row["peak_mib"], wanted))
    if row["system"] in LINEAR and "growth" in row:
        goals.append(at_most("growth", row["growth"], GROWTH))
    return goals


def of_generation(row: Row, args: Namespace) -> list[Row]:
    """The goals of a row of ``generate``."""
    goals = []
    if args.sizes == SMALL and row["system"] == "luna":
        length = row["length"]
        if length in GENERATION and args.reference == "transformer":
            goals.append(at_least("times as fast", row["times_as_fast"], GENERATION[length]))
        if length in LATE_TOKEN:
            goals.append(at_most("last / first", row["last_over_first"], LATE_TOKEN[length]))
    if row["system"] in CONSTANT_STATE:
        goals.append(at_most("state at T / at T/2", row["state_bytes_end"] / row["state_bytes_half"], 1))
    return goals


def of_optimizer(row: Row, args: Namespace) -> list[Row]:
    """The goals of a row of ``optimizer``."""
    if (args.parameters, args.tensors) != APOLLO_SIZE or row["system"] != "apollo":
        return []
    goals = []
    if args.reference == "adamw":
        goals.append(at_most("time / adamw", row["ratio"], APOLLO))
    if args.device == "cuda" and "times_as_fast_as_one_by_one" in row:
        goals.append(at_least("times as fast as one by one", row["times_as_fast_as_one_by_one"], TOGETHER))
    return goals


def column() -> Column:
    return Column("goals", lambda row: "; ".join(map(_in_words, row["goals"])))


def _in_words(goal: Row) -> str:
    reached = "nothing" if goal["reached"] is None else f"{goal['reached']:,.4g}"
    return f"{goal['goal']}: {reached}, {'met' if goal['met'] else 'missed'}"


def summary(rows: Iterable[Row]) -> str:
    """A line that counts the goals; empty if there are none."""
    goals = [goal for row in rows for goal in row.get("goals", [])]
    return f"goals: {sum(goal['met'] for goal in goals)} of {len(goals)} met" if goals else ""

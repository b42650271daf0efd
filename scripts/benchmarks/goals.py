"""The goals for some of the numbers, and whether they are met."""

from argparse import Namespace
from collections.abc import Iterable

from .command import Column, Row
from .models import BASE, SMALL, TINY

# Maximum time of a training step over fairseq's transformer's, by size, length and batch.
TRAINING = {
    (BASE, 25, 40): {"luna": 1.06, "luna-softmax-source": 1.06, "fastformer": 0.98, "block": 1.06},
    (TINY, 25, 40): {"luna": 1.00, "luna-softmax-source": 1.00, "fastformer": 0.86, "block": 1.00},
    (SMALL, 25, 40): {"luna": 1.15},
    (SMALL, 128, 8): {"luna": 0.90},
    (SMALL, 512, 2): {"luna": 0.70},
    (SMALL, 1024, 1): {"luna": 0.50},
    (SMALL, 2048, 1): {"luna": 0.33},
}
# Maximum time of beam search over fairseq's transformer's, by size, length and sentences.
GENERATION = {
    (SMALL, 25, 4): {"luna": 1.00, "fastformer": 0.95, "block": 1.05},
    (SMALL, 25, 32): {"luna": 0.92, "fastformer": 0.85, "block": 0.95},
    (BASE, 25, 8): {"luna": 1.00, "luna-softmax-source": 1.00, "fastformer": 0.95, "block": 1.00},
    (SMALL, 512, 4): {"luna": 1 / 2.4},
    (SMALL, 1024, 4): {"luna": 1 / 4.5},
}
# Maximum time of Luna's beam search over CTranslate2's in fp32, by size, length and sentences.
ENGINE = {(SMALL._replace(vocabulary=1600), 512, 4): 0.5, (SMALL._replace(vocabulary=1600), 1024, 4): 0.3}
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
# Maximum launches of a training step and of a decoding step over fairseq's transformer's.
LAUNCHES = {"luna": (1.25, 1.05), "fastformer": (1.4, 1.25), "block": (1.6, 1.25)}
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
    wanted = TRAINING.get((args.sizes, row["length"], row["batch"]), {}).get(row["system"])
    plain = not (args.optimizer != "none" or args.source_length or args.checkpoint_activations)
    if wanted is None or not plain or args.reference != "transformer":
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
    shape = (args.sizes, row["length"], args.sentences)
    wanted = GENERATION.get(shape, {}).get(row["system"])
    if wanted is not None and args.reference == "transformer":
        goals.append(at_most("time / transformer", row["ratio"], wanted))
    if row["system"] == "luna" and args.reference == "ctranslate2-float32" and shape in ENGINE:
        goals.append(at_most("CPU time / CTranslate2", row["cpu_ratio"], ENGINE[shape]))
    if row["system"] == "luna" and row["length"] in LATE_TOKEN:
        goals.append(at_most("last / first", row["last_over_first"], LATE_TOKEN[row["length"]]))
    if row["system"] in CONSTANT_STATE:
        goals.append(at_most("state at T / at T/2", row["state_bytes_end"] / row["state_bytes_half"], 1))
    return goals


def of_launches(row: Row, reference: Row, args: Namespace) -> list[Row]:
    """The goals of a row of ``launches``; ``reference`` is the row of fairseq's transformer."""
    shape = (reference["system"], args.sizes, args.length, args.dtype)
    if shape != ("transformer", BASE, 25, "bfloat16") or row["system"] not in LAUNCHES:
        return []
    goals = []
    for name, most in zip(("training", "decoding"), LAUNCHES[row["system"]], strict=True):
        goals.append(at_most(name, row[f"{name}_ratio"], most))
        read = f"{name}_synchronisations"
        goals.append(at_most(f"numbers read in {name}", row[read], reference[read]))
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

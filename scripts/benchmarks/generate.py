"""fairseq's beam search, in which all hypotheses have the same fixed length.

Systems whose names end in -recorded are decoded by the recorded search, with the same hypotheses.

The models are untrained: the time does not depend on the chosen tokens.
"""

import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor
from torch.utils.benchmark import timer

from fairseq_luna.command_line import CommandError, positive
from fairseq_luna.ops.padding import Padding

from . import engines, systems
from .flags import Row
from .systems import add_sizes, build, sentences, sizes_of
from .timing import MEMORY, TIMES, Step, measured

SYSTEMS, VARIANTS = systems.SYSTEMS, systems.VARIANTS | engines.SYSTEMS
REFERENCE, ROUNDS = "transformer", 3
EDGE = 100  # tokens at each end whose times are compared
WARM_UP_LENGTH = 16
TOKENS = {f"ms a token, first {EDGE}": "{first_ms:.2f}", "last": "{last_ms:.2f}", "state bytes": "{state_bytes:,}"}
COLUMNS = {"T": "{length}", "model": "{system}", **TIMES, **TOKENS, **MEMORY}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--lengths", type=positive, nargs="+", default=[512, 1024], metavar="T", help="generated")
    parser.add_argument("--source-length", type=positive, default=64)
    parser.add_argument("--sentences", type=positive, default=4)
    parser.add_argument("--beam", type=positive, default=5)
    add_sizes(parser)


def check(args: Namespace) -> None:
    if min(args.lengths) < 4:
        raise CommandError(f"--lengths {min(args.lengths)}: must be 4 or more, to compare early and late tokens")
    if args.beam >= sizes_of(args).vocabulary:
        raise CommandError(f"--beam {args.beam}: must be less than --vocabulary {sizes_of(args).vocabulary}")
    if set(args.systems) & engines.SYSTEMS.keys() and (args.device, args.dtype) != ("cpu", "float32"):
        raise CommandError("engines run in float32 on the CPU; leave out --device and --dtype")


class WatchedDecoder:
    """Replaces a decoder's ``forward``; records the start time of each token and the size of the state."""

    def __init__(self, decoder: Any) -> None:
        self.forward = decoder.forward
        self.begin()
        decoder.forward = self

    def begin(self) -> None:
        """Start recording a generation."""
        self.starts: list[float] = []
        self.state_bytes = 0

    def __call__(self, tokens: Tensor, *args: Any, incremental_state: Any = None, **kwargs: Any) -> Any:
        self.starts.append(timer())
        out = self.forward(tokens, *args, incremental_state=incremental_state, **kwargs)
        self.state_bytes = size_in_bytes(incremental_state)
        return out

    def edges(self) -> tuple[float, float]:
        """The mean milliseconds of a whole step among the first tokens, without the very first, and among the last."""
        edge = min(EDGE, len(self.starts) // 4)
        first, last = self.starts[1 : edge + 2], self.starts[-edge - 1 :]
        return 1000 * (first[-1] - first[0]) / edge, 1000 * (last[-1] - last[0]) / edge


def size_in_bytes(state: Any) -> int:
    """The size of all tensors in fairseq's incremental state: in its dictionaries, and in our tuples and padding."""
    if isinstance(state, Tensor):
        return state.nbytes
    if isinstance(state, Padding):
        return size_in_bytes(state.mask)
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, tuple) else ()
    return sum(map(size_in_bytes, parts))


class Generation:
    """A model and its beam search; ``history`` has the first and last times and the size of the state of each run."""

    def __init__(self, system: str, args: Namespace) -> None:
        self.args = args
        self.model, self.task, cfg = build(args, system, max(*args.lengths, args.source_length) + 1)
        self.model.eval()
        self.model.prepare_for_inference_(cfg)
        self.decoder = WatchedDecoder(self.model.decoder)
        tokens = sentences(args, args.sentences, args.source_length)
        lengths = tokens.new_full((args.sentences,), args.source_length)
        self.sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
        self.history: list[Row] = []

    def step(self, length: int) -> Step:
        """A step that generates ``length`` tokens for each hypothesis, the last one EOS."""
        limits = {"min_len": length - 1, "max_len_a": 0, "max_len_b": length - 1}
        words = self.task.target_dictionary
        self.history = []
        generator = SequenceGenerator([self.model], words, beam_size=self.args.beam, **limits)

        def generate() -> None:
            self.decoder.begin()
            found = generator.generate([self.model], self.sample)
            engines.check_length({len(hypothesis["tokens"]) for beam in found for hypothesis in beam}, length)
            if self.decoder.starts:  # the recorded search does not call it: its tokens are launches of a graph
                first, last = self.decoder.edges()
                self.history.append({"first": first, "last": last, "state_bytes": self.decoder.state_bytes})

        return generate


def generation_of(system: str, args: Namespace) -> Any:
    return engines.SYSTEMS.get(system, Generation)(system, args)


def warm(system: str, args: Namespace, length: int) -> Step:
    """A step in a fresh process, after a short one for torch's initialisation."""
    generation = generation_of(system, args)
    generation.step(WARM_UP_LENGTH)()
    return generation.step(length)


def rows(args: Namespace) -> Iterator[Row]:
    """One for each length and system."""
    generations = {system: generation_of(system, args) for system in args.systems if not args.memory}
    for generation in generations.values():
        for _ in range(args.warm_up):
            generation.step(WARM_UP_LENGTH)()
    for length in args.lengths:
        steps = {system: generation.step(length) for system, generation in generations.items()}
        for row in measured(args, steps.__getitem__, warm, args, length, warm_up=0):
            yield row | {"length": length} | of_history(generations.get(row["system"]))


def of_history(generation: Any) -> Row:
    """The times of tokens and the size of the state, for a row, if they were recorded."""
    if not getattr(generation, "history", []):
        return {}
    times = {f"{key}_ms": statistics.median(run[key] for run in generation.history) for key in ("first", "last")}
    return {**times, "state_bytes": generation.history[-1]["state_bytes"]}

"""fairseq's beam search, in which all hypotheses have the same fixed length.

The models are untrained: the time does not depend on the chosen tokens.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_luna.commands.command_line import CommandError, positive

from . import ctranslate2_engine, deployed_engine, goals
from .arguments import add_common, check_common
from .command import Column, Command, Panel, Row
from .ctranslate2_engine import CTranslate2
from .deployed_engine import Deployed
from .memory import memory_column, peak_mib
from .models import SMALL, SYSTEMS, VARIANTS, add_size_arguments, build, sizes_of, source
from .timing import Seconds, Step, compared, in_turn, named, now, ratios, spread, stopwatch, time_columns, walls
from .train import describe

LENGTHS = [512, 1024]
EDGE = 100  # tokens at each end whose times are compared
WARM_UP_LENGTH = 16


def add_arguments(parser: ArgumentParser) -> None:
    variants = (*VARIANTS, *ctranslate2_engine.SYSTEMS, *deployed_engine.SYSTEMS)
    add_common(parser, systems=SYSTEMS, variants=variants, reference="transformer", rounds=3)
    parser.add_argument("--lengths", type=positive, nargs="+", default=LENGTHS, metavar="T", help="tokens generated")
    parser.add_argument("--source-length", type=positive, default=64)
    parser.add_argument("--sentences", type=positive, default=4)
    parser.add_argument("--beam", type=positive, default=5)
    add_size_arguments(parser)


def check(args: Namespace) -> None:
    check_common(args)
    if min(args.lengths) < 4:
        raise CommandError(f"--lengths {min(args.lengths)}: must be 4 or more, to compare early and late tokens")
    args.sizes = sizes_of(args, SMALL)
    if args.beam >= args.sizes.vocabulary:
        raise CommandError(f"--beam {args.beam}: must be less than --vocabulary {args.sizes.vocabulary}")
    if set(args.systems) & set(deployed_engine.SYSTEMS) and (args.device, args.dtype) != ("cpu", "float32"):
        raise CommandError("exported systems run in float32 on the CPU; leave out --device and --dtype")


class WatchedDecoder:
    """Replaces a decoder's ``forward``; records the start time of each token and the size of the state."""

    def __init__(self, decoder: Any, device: str) -> None:
        self.forward = decoder.forward
        self.device = device
        self.begin(0)
        decoder.forward = self

    def begin(self, length: int) -> None:
        """Start recording a generation of ``length`` tokens."""
        self.starts: list[Seconds] = []
        self.state_bytes = dict.fromkeys((length // 2, length), 0)

    def __call__(self, tokens: Tensor, *args: Any, incremental_state: Any = None, **kwargs: Any) -> Any:
        self.starts.append(now(self.device))
        out = self.forward(tokens, *args, incremental_state=incremental_state, **kwargs)
        if len(self.starts) in self.state_bytes:
            self.state_bytes[len(self.starts)] = size_in_bytes(incremental_state)
        return out

    def edges(self) -> tuple[Seconds, Seconds]:
        """The mean time of a whole step among the first tokens, without the very first, and among the last."""
        edge = edge_of(len(self.starts))
        first = self.starts[1 : edge + 2]
        last = self.starts[-edge - 1 :]
        return (first[-1] - first[0]) / edge, (last[-1] - last[0]) / edge


def edge_of(length: int) -> int:
    return min(EDGE, length // 4)


def size_in_bytes(state: Any) -> int:
    """The size of all tensors in fairseq's incremental state."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    return sum(map(size_in_bytes, state.values())) if isinstance(state, dict) else 0


class Generation:
    """A model and its beam search; ``history`` has the first and last times and the state sizes of each run."""

    def __init__(self, system: str, args: Namespace) -> None:
        self.args = args
        self.model, self.task, cfg = build(args, system, args.sizes, max(*args.lengths, args.source_length) + 1)
        self.model.eval()
        self.model.prepare_for_inference_(cfg)
        self.decoder = WatchedDecoder(self.model.decoder, args.device)
        tokens = source(args.sentences, args.source_length, args.sizes, args.device)
        lengths = tokens.new_full((args.sentences,), args.source_length)
        self.sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
        self.history: list[Row] = []

    def step(self, length: int) -> Step:
        """A step that generates ``length`` tokens for each hypothesis, the last one EOS."""
        generator = SequenceGenerator(
            [self.model],
            self.task.target_dictionary,
            beam_size=self.args.beam,
            min_len=length - 1,
            max_len_a=0,
            max_len_b=length - 1,
        )

        def generate() -> None:
            self.decoder.begin(length)
            hypotheses = [hypothesis for beam in generator.generate([self.model], self.sample) for hypothesis in beam]
            if {len(hypothesis["tokens"]) for hypothesis in hypotheses} != {length}:
                raise RuntimeError(f"a hypothesis does not have {length} tokens")
            first, last = self.decoder.edges()
            self.history.append({"first": first, "last": last, "state_bytes": dict(self.decoder.state_bytes)})

        return generate


def generation_of(system: str, args: Namespace) -> Generation | CTranslate2 | Deployed:
    if system in ctranslate2_engine.SYSTEMS:
        return CTranslate2(system, args)
    return Deployed(system, args) if system in deployed_engine.SYSTEMS else Generation(system, args)


def step_of(system: str, args: Namespace, length: int) -> Step:
    """A step in a fresh process, after a short one for torch's initialisation."""
    generation = generation_of(system, args)
    generation.step(WARM_UP_LENGTH)()
    return generation.step(length)


def rows(args: Namespace) -> Iterator[Row]:
    """One for each length and system."""
    generations = {system: generation_of(system, args) for system in args.systems}
    for generation in generations.values():
        for _ in range(args.warm_up):
            generation.step(WARM_UP_LENGTH)()
    for length in args.lengths:
        for generation in generations.values():
            generation.history.clear()
        steps = {system: generation.step(length) for system, generation in generations.items()}
        taken = in_turn(steps, rounds=args.rounds, seconds=stopwatch(args.device))
        for system, row in compared(taken, args.reference).items():
            tokens = args.sentences * args.beam * length
            row |= {"length": length, "hypotheses": args.sentences * args.beam}
            row |= {"seconds": row["ms"] / 1000, "tokens_per_second": 1000 * tokens / row["ms"]}
            faster = ratios(walls(taken[args.reference]), walls(taken[system]))
            row |= named("times_as_fast", spread(faster))
            row |= of_history(generations[system].history, length)
            if not args.no_peak:
                row["peak_mib"] = peak_mib(step_of, system, args, length, device=args.device, threads=args.threads)
            yield row | {"goals": goals.of_generation(row, args)}


def of_history(history: list[Row], length: int) -> Row:
    """The times of tokens and the sizes of the state, for a row; nothing without a history."""
    if not history:
        return {}
    state = history[-1]["state_bytes"]
    return {
        "edge_tokens": edge_of(length),
        **named("first_ms", spread([1000 * run["first"].wall for run in history])),
        **named("last_ms", spread([1000 * run["last"].wall for run in history])),
        **named("last_over_first", spread([run["last"].wall / run["first"].wall for run in history])),
        **named("cpu_last_over_first", spread([run["last"].cpu / run["first"].cpu for run in history])),
        "state_bytes_half": state[length // 2],
        "state_bytes_end": state[length],
    }


def columns(args: Namespace) -> list[Column]:
    def recorded(heading: str, key: str, digits: str) -> Column:
        return Column(heading, lambda row: format(row[key], digits) if key in row else "")

    return [
        Column("T", lambda row: str(row["length"])),
        Column("model", lambda row: row["system"]),
        *time_columns(args.reference),
        Column("times as fast", lambda row: f"{row['times_as_fast']:.2f}"),
        Column("tokens/s of all hypotheses", lambda row: f"{row['tokens_per_second']:,.0f}"),
        recorded("ms a token, first", "first_ms", ".2f"),
        recorded("last", "last_ms", ".2f"),
        recorded("last / first", "last_over_first", ".2f"),
        recorded("CPU", "cpu_last_over_first", ".2f"),
        recorded("state bytes at T/2", "state_bytes_half", ","),
        recorded("at T", "state_bytes_end", ","),
        memory_column(),
        goals.column(),
    ]


def title(args: Namespace) -> str:
    return (
        f"Beam search, {args.sentences} sentences of {args.source_length} tokens x beam {args.beam}, all forced to T "
        f"tokens: {describe(args.sizes)}; first and last: means of up to {EDGE} tokens; {args.rounds} rounds"
    )


COMMAND = Command(
    help="beam search, beside fairseq's transformer",
    description=__doc__,
    add_arguments=add_arguments,
    check=check,
    title=title,
    rows=rows,
    columns=columns,
    panels=(
        Panel("seconds", "seconds"),
        Panel("state_bytes_end", "bytes of the state at the end"),
        Panel("peak_mib", "peak MiB"),
    ),
    quick={"rounds": 2, "lengths": [256], "no_peak": True},
)

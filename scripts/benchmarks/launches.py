"""The operators that a training step and a decoding step run, and the numbers that they read from tensors.

An operator that is not a view is at least one kernel on a GPU, and where sentences are short, launching it takes longer
than its work. A tensor that becomes a Python number stops the GPU until all earlier work is done. Neither count depends
on the machine. The decoding step is not the first, in which constants of the sentence are made. In half precision some
matrix products are in fp32; their share is that of their multiplications.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fairseq_luna.commands.command_line import positive

from . import goals
from .arguments import add_common, check_common
from .command import Column, Command, Row
from .models import BASE, SYSTEMS, VARIANTS, add_size_arguments, build, sample, sizes_of
from .train import describe

PAD = 1
STEP = 10  # the decoding step that is counted
aten = torch.ops.aten
READS_A_NUMBER = (aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten._unique2)
# Neither a kernel nor, by its schema, a view.
FREE = (aten._unsafe_view, aten._reshape_alias, aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided)


class Count(TorchDispatchMode):
    """Counts while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = 0
        self.synchronisations = 0
        self.multiplications: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in READS_A_NUMBER:
            self.synchronisations += 1
        elif not func.is_view and func.overloadpacket not in FREE:
            self.launches += 1
        out = func(*args, **(kwargs or {}))
        if flops := flop_registry.get(func.overloadpacket):
            self.multiplications[args[0].dtype] += flops(*args, **(kwargs or {}), out_val=out) // 2
        return out

    def share_in_fp32(self) -> float:
        """Of the multiplications of matrix products."""
        return self.multiplications[torch.float32] / self.multiplications.total()


def counted(step: Callable[[], object]) -> Count:
    # fairseq's positions ask for a shape as a tensor, which is on the CPU whatever the device of the model.
    with patch("torch.onnx.operators.shape_as_tensor", lambda x: x.shape), Count() as count:
        step()
    return count


def add_arguments(parser: ArgumentParser) -> None:
    add_common(parser, systems=SYSTEMS, variants=VARIANTS, reference="transformer", rounds=1, png=False, timed=False)
    parser.set_defaults(dtype="bfloat16")
    parser.add_argument("--length", type=positive, default=25, help="tokens of every sentence (default: 25)")
    add_size_arguments(parser)


def check(args: Namespace) -> None:
    check_common(args)
    args.sizes = sizes_of(args, BASE)


def rows(args: Namespace) -> Iterator[Row]:
    """One for each system."""
    reference = None
    for system in sorted(args.systems, key=lambda system: system != args.reference):
        row: Row = {"system": system, "length": args.length} | counts(system, args)
        reference = reference or row
        for name in ("training", "decoding"):
            row[f"{name}_ratio"] = row[f"{name}_launches"] / reference[f"{name}_launches"]
        yield row | {"goals": goals.of_launches(row, reference, args)}


def counts(system: str, args: Namespace) -> Row:
    model, task, cfg = build(args, system, args.sizes, args.length)
    criterion = task.build_criterion(cfg.criterion)
    batch = padded(sample(2, args.length, args.length, args.sizes, args.device))
    training = counted(lambda: criterion(model, batch)[0].backward())
    model.eval()
    decoding, reorder = decoding_step(model, batch["net_input"])
    return {
        "training_launches": training.launches,
        "training_synchronisations": training.synchronisations,
        "training_fp32": training.share_in_fp32(),
        "decoding_launches": decoding.launches,
        "decoding_synchronisations": decoding.synchronisations,
        "reorder_launches": reorder.launches,
    }


def padded(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with a shorter second sentence, padded as fairseq pads: a source in front, a target at its end."""
    batch["net_input"]["src_tokens"][1, 0] = PAD
    batch["net_input"]["src_lengths"][1] -= 1
    batch["net_input"]["prev_output_tokens"][1, -1] = PAD
    batch["target"][1, -1] = PAD
    return batch


@torch.no_grad()
def decoding_step(model: Any, net_input: dict[str, Tensor]) -> tuple[Count, Count]:
    """The counts of a step of the decoder, and of the reorder of its state after it."""
    model.make_generation_fast_()
    tokens = net_input["prev_output_tokens"][:1].expand(2, -1)
    encoder_out = model.encoder.forward_torchscript(net_input)
    order = torch.arange(2, device=tokens.device)
    state: dict[str, Any] = {}
    for step in range(1, STEP):
        model.decoder(tokens[:, :step], encoder_out=encoder_out, incremental_state=state)
        model.decoder.reorder_incremental_state_scripting(state, order)
    decoding = counted(lambda: model.decoder(tokens[:, :STEP], encoder_out=encoder_out, incremental_state=state))
    return decoding, counted(lambda: model.decoder.reorder_incremental_state_scripting(state, order))


def columns(args: Namespace) -> list[Column]:
    def beside(name: str) -> Column:
        return Column(f"{name} / {args.reference}", lambda row: f"{row[f'{name}_ratio']:.2f}")

    def of(key: str, heading: str) -> Column:
        return Column(heading, lambda row: f"{row[key]:,}")

    return [
        Column("model", lambda row: row["system"]),
        of("training_launches", "training step"),
        beside("training"),
        of("training_synchronisations", "numbers read"),
        Column("products in fp32", lambda row: f"{row['training_fp32']:.1%}"),
        of("decoding_launches", "decoding step"),
        beside("decoding"),
        of("decoding_synchronisations", "numbers read"),
        of("reorder_launches", "reorder of the state"),
        goals.column(),
    ]


def title(args: Namespace) -> str:
    return f"Operators that are not views, at {args.length} tokens, {args.dtype}: {describe(args.sizes)}"


COMMAND = Command(
    help="operators of a training step and a decoding step",
    description=__doc__,
    add_arguments=add_arguments,
    check=check,
    title=title,
    rows=rows,
    columns=columns,
    quick={},
)

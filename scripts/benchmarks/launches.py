"""The operators that a training step and a decoding step run, and the numbers that they read from tensors.

An operator that is not a view is at least one kernel on a GPU, and where sentences are short, launching it takes longer
than its work. A tensor that becomes a Python number stops the GPU until all earlier work is done. Neither count depends
on the machine. The decoding step is not the first, in which constants of the sentence are made. In half precision some
matrix products are in fp32; their share is the share of their multiplications.
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

from fairseq_luna.command_line import positive

from . import systems
from .flags import Row
from .systems import PAD, add_sizes, batch, build

SYSTEMS, VARIANTS, REFERENCE, ROUNDS = systems.SYSTEMS, systems.VARIANTS, "transformer", 0
COLUMNS = {
    "model": "{system}",
    **{"training step": "{training:,}", "/ reference": "{training_ratio:.2f}", "numbers read": "{training_reads}"},
    **{"products in fp32": "{training_fp32:.1%}", "decoding step": "{decoding:,}"},
    **{"decoding / reference": "{decoding_ratio:.2f}", "numbers read in decoding": "{decoding_reads}"},
    **{"reorder of the state": "{reorder:,}"},
}
STEP = 10  # the decoding step that is counted
aten = torch.ops.aten
READS_A_NUMBER = (aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten._unique2)
# Neither a kernel nor, by its schema, a view.
FREE = (aten._unsafe_view, aten._reshape_alias, aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided)


class Count(TorchDispatchMode):
    """Counts while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.synchronisations = 0
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


def counted(step: Callable[[], object]) -> Count:
    # fairseq's positions ask for a shape as a tensor, which is on the CPU whatever the device of the model.
    with patch("torch.onnx.operators.shape_as_tensor", lambda x: x.shape), Count() as count:
        step()
    return count


def add_arguments(parser: ArgumentParser) -> None:
    parser.set_defaults(dtype="bfloat16")
    parser.add_argument("--length", type=positive, default=25, help="tokens of every sentence (default: 25)")
    add_sizes(parser, default="base")


def rows(args: Namespace) -> Iterator[Row]:
    """One for each system."""
    reference: Row = {}
    for system in sorted(args.systems, key=lambda system: system != args.reference):
        row = counts(system, args)
        reference = reference or row
        ratios = {f"{name}_ratio": row[name] / reference[name] for name in ("training", "decoding")}
        yield {"system": system, "length": args.length, **row, **ratios}


def counts(system: str, args: Namespace) -> Row:
    model, task, cfg = build(args, system, args.length)
    criterion, padded = task.build_criterion(cfg.criterion), batch(args, 2, args.length, args.length)
    # The second sentence is shorter, and padded as fairseq pads: a source in front, a target at its end.
    net_input = padded["net_input"]
    net_input["src_tokens"][1, 0] = net_input["prev_output_tokens"][1, -1] = padded["target"][1, -1] = PAD
    net_input["src_lengths"][1] -= 1
    training = counted(lambda: criterion(model, padded)[0].backward())
    decoding, reorder = decoding_step(model.eval(), net_input)
    return {
        "training": training.launches,
        "training_reads": training.synchronisations,
        "training_fp32": training.multiplications[torch.float32] / training.multiplications.total(),
        "decoding": decoding.launches,
        "decoding_reads": decoding.synchronisations,
        "reorder": reorder.launches,
    }


@torch.no_grad()
def decoding_step(model: Any, net_input: dict[str, Tensor]) -> tuple[Count, Count]:
    """The counts of a step of the decoder, and of the reorder of its state after it."""
    model.make_generation_fast_()
    tokens = net_input["prev_output_tokens"][:1].expand(2, -1)
    encoder_out = model.encoder.forward_torchscript(net_input)
    order = torch.arange(2, device=tokens.device)
    state: dict[str, Any] = {}
    for step in range(1, STEP + 1):
        given = {"encoder_out": encoder_out, "incremental_state": state}
        decoding = counted(lambda: model.decoder(tokens[:, :step], **given))  # noqa: B023 (called at once)
        reorder = counted(lambda: model.decoder.reorder_incremental_state_scripting(state, order))
    return decoding, reorder

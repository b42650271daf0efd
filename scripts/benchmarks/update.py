"""The launches of an update of the parameters, by fairseq's own functions and by the patched ones.

Counted are operators, as by the command launches, and the kernels that they are on a GPU. A multi-tensor call is a
kernel for as many tensors and elements as the arguments of a launch have room for, 4 KB or, in torch 2.13 for CUDA 13,
32 KB; it is one for each tensor where torch loops. The parameters are the parameters of --model, without data: no
count depends on the machine. The last two columns are all that an update launches besides graphs. With
--record-training the batch and the loss scale are copied, gradients cleared, the report copied, and the parameters
updated. With torch.cuda.make_graphed_callables around the model, which replays its forward and its backward pass, the
batch and the gradient of the logits are copied, fairseq's criterion is computed and differentiated, each parameter's
gradient is copied from the memory of the graph, and the parameters are updated.
"""

import functools
import inspect
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from fairseq import optim, options
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.adam import Adam
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_luna.compat import multi_tensor_gradients
from fairseq_luna.recorded_training import FlatGradients, RecordedStep

from . import systems
from .flags import Row
from .launches import FREE, READS_A_NUMBER
from .systems import add_sizes, build

SYSTEMS = {
    "adam": ("--optimizer=adam", "--lr=1e-4", "--weight-decay=1e-4"),
    "apollo": ("--optimizer=apollo", "--lr=0.1", "--weight-decay=1e-8", "--lr-scheduler=milestone"),
}
VARIANTS, REFERENCE, ROUNDS = (), "adam", 0
PRECISIONS: dict[str, tuple[str, ...]] = {
    "fp32": (),
    "bf16": ("--bf16",),
    "fp16": ("--fp16", "--fp16-no-flatten-grads"),
    "fp16, one vector": ("--fp16",),
    "memory-efficient bf16": ("--memory-efficient-bf16",),
    "memory-efficient fp16": ("--memory-efficient-fp16",),
}
COLUMNS = {
    **{"optimizer": "{system}", "precision": "{precision}", "tensors": "{tensors:,}"},
    **{"operators, fairseq's": "{fairseq_operators:,}", "patched": "{operators:,}"},
    **{
        "kernels, fairseq's": "{fairseq_kernels:,}",
        "patched ": "{kernels:,}",
        "patched, 32 KB": "{kernels_32_kb:,}",
    },
    **{"besides a recorded step": "{besides_the_graph:,}", "besides a graphed model": "{besides_a_graphed_model:,}"},
}
# Tensors of a launch by the number of lists, and blocks, each of CHUNK elements (torch's MultiTensorApply.cuh).
ROOM_4_KB, ROOM_32_KB = ((110, 64, 48, 36, 30), 320), ((770, 448, 336, 252, 210), 2240)
CHUNK = 2**16
Room = tuple[tuple[int, ...], int]


class Count(TorchDispatchMode):
    """Counts while it is entered. To those who ask, a norm is 1 and larger than any other number."""

    def __init__(self) -> None:
        super().__init__()
        self.operators, self.kernels, self.larger = 0, {ROOM_4_KB: 0, ROOM_32_KB: 0}, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in READS_A_NUMBER:
            return self.larger if args[0].dtype == torch.bool else 1.0
        self.larger = func.overloadpacket is torch.ops.aten.gt
        out = func(*args, **(kwargs or {}))
        # torch marks each step of an optimizer for its profiler.
        if not func.is_view and func.overloadpacket not in FREE and func.namespace != "profiler":
            self.operators += 1
            for room in self.kernels:
                self.kernels[room] += kernels(func.overloadpacket.__name__, args, room)
        return out


def kernels(name: str, args: Sequence[Any], room: Room) -> int:
    """Kernels of an operator on a GPU."""
    if not name.startswith("_foreach"):
        return 1
    lists = [arg for arg in args if isinstance(arg, list | tuple) and isinstance(arg[0], Tensor)]
    if is_loop(name, args, lists):
        return len(lists[0])
    if name == "_foreach_norm":  # of parts, for which zeros are written; then of each tensor
        return launched([x.numel() for x in lists[0]], 1, room) + 2
    return launched([x.numel() for x in lists[0]], len(lists) + (not name.endswith("_")), room)


def is_loop(name: str, args: Sequence[Any], lists: Sequence[Sequence[Tensor]]) -> bool:
    """Whether torch calls the operator for each tensor, because operands differ in more than values."""
    layouts = any(len({(x.shape, x.stride()) for x in same}) > 1 for same in zip(*lists, strict=True))
    factors = {arg.dtype for arg in args if isinstance(arg, Tensor)}
    dtypes = [{x.dtype for x in tensors} for tensors in lists]
    mixed = max(map(len, dtypes)) > 1 if "copy" in name else len(factors.union(*dtypes)) > 1
    return layouts or mixed


def launched(sizes: Sequence[int], lists: int, room: Room) -> int:
    """Launches of a multi-tensor kernel, as torch fills them: by tensors and by blocks."""
    most, blocks_of_a_launch = room[0][lists - 1], room[1]
    done = tensors = blocks = 0
    for size in sizes:
        chunks = -(-size // CHUNK)
        tensors += chunks > 0
        for left in range(chunks - 1, -1, -1):
            blocks += 1
            if blocks == blocks_of_a_launch or (tensors == most and not left):
                done, blocks, tensors = done + 1, 0, 1 if left else 0
    return done + (blocks > 0)


@contextmanager
def fairseqs() -> Iterator[None]:
    """fairseq's own functions in place of the patched ones."""
    with ExitStack() as stack:
        for owner, name, _ in multi_tensor_gradients.REPLACED:
            stack.enter_context(patch.object(owner, name, getattr(owner, name).__wrapped__))
        stack.enter_context(patch.object(Adam, "step", inspect.unwrap(Adam.step)))
        yield


def add_arguments(parser: ArgumentParser) -> None:
    names = [*systems.SYSTEMS, *systems.VARIANTS]
    parser.add_argument("--model", choices=names, default="luna", metavar="NAME", help="default: luna")
    add_sizes(parser, default="base")


def rows(args: Namespace) -> Iterator[Row]:
    """One for each optimizer and precision."""
    model, task, _ = build(args, args.model, 25)
    of_criterion = criterion_launches(task, len(task.target_dictionary))
    shapes = [p.shape for p in model.parameters() if p.requires_grad]
    for system in args.systems:
        for precision, flags in PRECISIONS.items():
            if system == "apollo" and precision == "fp16, one vector":  # its norms are of each tensor
                continue
            cfg = config("--clip-norm=0.1", *SYSTEMS[system], *flags)
            with fairseqs():
                before = counted(cfg, shapes)
            after = counted(cfg, shapes)
            yield {
                **{"system": system, "precision": precision, "tensors": len(shapes)},
                **{"fairseq_operators": before.operators, "fairseq_kernels": before.kernels[ROOM_4_KB]},
                **{"operators": after.operators, "kernels": after.kernels[ROOM_4_KB]},
                "kernels_32_kb": after.kernels[ROOM_32_KB],
                "besides_the_graph": after.kernels[ROOM_4_KB] + around_a_replay(cfg, shapes).kernels[ROOM_4_KB],
                # Three tensors of the batch and the gradient of the logits are copied.
                "besides_a_graphed_model": after.kernels[ROOM_4_KB] + of_criterion + 3 + 1 + len(shapes),
            }


@functools.cache
def config(*flags: str) -> Any:
    """fairseq's, of a training with ``flags``."""
    given = ["no-data", "--arch=transformer", *flags]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), input_args=given))


def counted(cfg: Any, shapes: Sequence[torch.Size]) -> Count:
    """The second update, as the state is made in the first one."""
    params = parameters(cfg, shapes)
    # fairseq names the GPU by a number, which the device of such tensors does not have.
    with patch.multiple(torch.cuda, is_available=lambda: True, current_device=lambda: None):
        optimizer = optimizer_of(cfg, params)
        for _ in range(2):
            with Count() as count:
                update(optimizer, params)
    return count


def parameters(cfg: Any, shapes: Sequence[torch.Size]) -> list[nn.Parameter]:
    common = cfg.common
    dtype = torch.float16 if common.fp16 else torch.bfloat16 if common.bf16 else torch.float32
    return [nn.Parameter(torch.empty(shape, dtype=dtype, device="meta")) for shape in shapes]


def around_a_replay(cfg: Any, shapes: Sequence[torch.Size]) -> Count:
    """The launches around the graph of the only batch of an update."""
    tokens, number = torch.empty(1, 1, dtype=torch.int64, device="meta"), torch.empty((), device="meta")
    net_input = {name: tokens for name in ("src_tokens", "src_lengths", "prev_output_tokens")}
    sample = {"net_input": net_input, "target": tokens}
    step = RecordedStep(
        sample,
        model=nn.Module(),
        criterion=nn.Module(),
        optimizer=Namespace(scaler=DynamicLossScaler() if cfg.common.fp16 else None),
        gradients=FlatGradients(parameters(cfg, shapes)),
        pads={},
        has_padding={},
        record=lambda function, reset: lambda: None,
    )
    step.loss, step.log, step.used = number, {"loss": number, "nll_loss": number}, list(range(len(shapes)))
    with Count() as count:
        step.replay(sample)
    return count


def criterion_launches(task: Any, vocabulary: int) -> int:
    """The launches of fairseq's label-smoothed loss and of its gradient, without its report."""
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    logits = torch.empty(2, 3, vocabulary, device="meta", requires_grad=True)
    sample = {"target": torch.empty(2, 3, dtype=torch.int64, device="meta")}
    model = SimpleNamespace(
        get_normalized_probs=lambda output, log_probs: output[0].log_softmax(-1, dtype=torch.float32),
        get_targets=lambda sample, output: sample["target"],
    )
    with Count() as count:
        loss, _ = criterion.compute_loss(model, (logits,), sample)
        loss.backward()
    return count.operators


def optimizer_of(cfg: Any, params: list[nn.Parameter]) -> Any:
    """The optimizer that fairseq's trainer builds."""
    common = cfg.common
    if common.memory_efficient_fp16 or common.memory_efficient_bf16:
        return optim.MemoryEfficientFP16Optimizer.build_optimizer(cfg, params)
    if common.fp16 or common.bf16:
        return optim.FP16Optimizer.build_optimizer(cfg, params)
    return optim.build_optimizer(cfg.optimizer, params)


def update(optimizer: Any, params: list[nn.Parameter]) -> None:
    """The update as fairseq's trainer calls it, with gradients in place of a backward pass."""
    optimizer.zero_grad()
    for p in params:
        p.grad = torch.empty_like(p)
    optimizer._needs_sync = True
    optimizer.multiply_grads(1 / 7)
    optimizer.clip_grad_norm(0.1)
    optimizer.step()

"""Count the kernels of a training step with compiled layers on a GPU that is not there.

    PYTHONPATH=.:scripts LD_PRELOAD=.venv-cuda/libcuda.so.1 .venv-cuda/bin/python research/compiled_launches.py

after make check-cuda, which makes what this needs.

The models run in bf16 on fake tensors, forward and backward, without the optimizer, as in gpu_estimate.py. Each encoder
and decoder layer, as with --compile-layers, or the whole model is traced and handed to inductor, for constant shapes.
In the generated code a call of a Triton kernel or of an operator that is not compiled is a launch, and inductor says
how many bytes are read and written. The code is not run. Operators outside, such as the criterion's, are counted as in
eager mode. "-" stands where a model reads a number from the device, so that it is not one graph.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

if __name__ == "__main__":  # before fairseq is imported, which logs much
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

import contextlib
import functools
import re
from argparse import Namespace

import torch
import torch._inductor.config
import triton
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn
from torch._dynamo.utils import detect_fake_mode
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes import fuse_attention, joint_graph, misc_patterns, pad_mm, post_grad
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._pytree import tree_flatten, tree_unflatten
from triton.backends.compiler import GPUTarget

from benchmarks.systems import build
from fairseq_luna.command_line import CommandError, Parser, command
from fairseq_luna.models.shared.decoder import CausalDecoder
from fairseq_luna.models.shared.encoder import PaddedEncoder
from fairseq_luna.models.shared.layers import ResidualLayer
from fairseq_luna.ops.padding import Padding
from research.gpu_estimate import KERNELS, Estimate
from shared.fake_device import on_fake_device

SYSTEMS = ("transformer", "softmax", "luna", "linear")
SHAPES = ((25, 328), (512, 16))
# The modules that are compiled.
COLUMNS: dict[str, tuple[type, ...]] = {
    "eager": (),
    "compiled layers": (ResidualLayer, TransformerEncoderLayerBase, TransformerDecoderLayerBase),
    "compiled model": (FairseqEncoderDecoderModel,),
}
TRITON_CALL = re.compile(r"triton_\w+\.run\(")
OPERATOR_CALL = re.compile(r"(?:extern_kernels|torch\.ops\.\w+|aten)\.(\w+)(?:\.\w+)?\(")


class Code(NamedTuple):
    """The kernels that inductor's code of a graph launches, and the bytes that they read and write."""

    launches: int
    bytes: int


class CodeGenerated(Exception):
    """Raised in place of loading the code, which would need a GPU."""


class StepCount(Estimate):
    """An estimate that can pause: tracing and a compiled graph run operators that a GPU would not launch."""

    counts = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.counts:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    @contextmanager
    def paused(self) -> Iterator[None]:
        before, self.counts = self.counts, False
        try:
            yield
        finally:
            self.counts = before


def code_of(graph: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> Code:
    """Generate inductor's code for a graph, and count its launches and bytes."""
    codes = []

    def generate(self: GraphLowering) -> None:
        source = self.codegen()[0].value
        body = source[source.index("def call(") :]
        operators = sum(KERNELS.get(name, 1) for name in OPERATOR_CALL.findall(body))
        codes.append(Code(len(TRITON_CALL.findall(body)) + operators, self.count_bytes()[0]))
        raise CodeGenerated

    settings = {"triton.cudagraphs": False, "fx_graph_cache": False, "compile_threads": 1}
    with mock.patch.object(GraphLowering, "compile_to_module", generate), torch._inductor.config.patch(settings):
        try:
            compile_fx_inner(graph, inputs, is_backward=backward)
        except Exception:
            if not codes:
                raise
    return codes[0]


def compiled(module: nn.Module, count: StepCount) -> Callable[..., Any]:
    """The ``forward`` of a module, which adds to ``count`` what its compiled code launches."""
    forward = module.forward

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        inputs = {i: x.mask if isinstance(x, Padding) else x for i, x in enumerate(leaves)}
        inputs = {i: x for i, x in inputs.items() if isinstance(x, Tensor)}
        named = dict(module.named_parameters()) | dict(module.named_buffers())

        def function(*tensors: Tensor) -> Any:
            values = list(leaves)
            for i, x in zip(inputs, tensors, strict=False):
                values[i] = Padding(x) if isinstance(leaves[i], Padding) else x
            own = dict(zip(named, tensors[len(inputs) :], strict=True))
            args, kwargs = tree_unflatten(values, structure)
            module.forward = forward
            try:
                with mock.patch("torch.compiler.is_compiling", lambda: True):
                    return torch.func.functional_call(module, own, args, kwargs)
            finally:
                module.forward = call

        with count.paused():
            traced = aot_function(
                function,
                functools.partial(counted, count=count, backward=False),
                functools.partial(counted, count=count, backward=True),
                partition_fn=partition,
                decompositions=select_decomp_table(),
                keep_inference_input_mutations=True,
            )
            return traced(*inputs.values(), *named.values())

    return call


def counted(graph: torch.fx.GraphModule, inputs: Sequence[Any], *, count: StepCount, backward: bool) -> Any:
    """The compiler of a traced graph: it runs the graph's operators, but counts inductor's code for them."""
    with count.paused():
        code = code_of(graph, inputs, backward=backward)

    def run(*args: Any) -> Any:
        count.launches += code.launches
        count.bytes += code.bytes
        with count.paused():
            return graph.forward(*args)

    return make_boxed_func(run)


def partition(graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
    """Divide a joint graph into forward and backward as torch.compile does, after its optimizations."""
    with V.set_fake_mode(detect_fake_mode(inputs)):
        joint_graph.joint_graph_passes(graph)
    return min_cut_rematerialization_partition(graph, inputs, compiler="inductor", **options)


def step(system: str, tokens: int, sentences: int, *, size: str, parts: tuple[type, ...] = ()) -> StepCount:
    """A step on ``sentences`` sources and targets of ``tokens`` words, some of them padding."""
    model, task, cfg = build(Namespace(device="cpu", dtype="float32", size=size), system, tokens)
    criterion = task.build_criterion(cfg.criterion)
    count = StepCount(shortest=tokens - 1)
    with on_fake_device(model, torch.bfloat16) as fake_model:
        fake_model.train()
        for module in fake_model.modules() if parts else ():
            if isinstance(module, PaddedEncoder | CausalDecoder):
                module.always_has_masks = True
            if isinstance(module, parts):
                module.forward = compiled(module, count)
        source, prefix, target = (torch.empty(sentences, tokens, dtype=torch.int64, device="cuda") for _ in range(3))
        lengths = torch.empty(sentences, dtype=torch.int64, device="cuda")
        inputs = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": prefix}
        with count:
            criterion(fake_model, {"net_input": inputs, "target": target, "ntokens": tokens * sentences})[0].backward()
    return count


def cell(system: str, tokens: int, sentences: int, size: str, parts: tuple[type, ...]) -> str:
    """The table's text for one step, or "-" if the model is not one graph."""
    try:
        count = step(system, tokens, sentences, size=size, parts=parts)
    except DataDependentOutputException:
        return "-"
    return f"{count.launches:,} ({count.bytes / 1e9:.0f})"


class NoDriver:
    """Triton's driver of a Hopper GPU, for code that is generated and not run."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_benchmarker(self) -> None:
        return None


@contextmanager
def code_generation() -> Iterator[None]:
    """Let inductor generate code without a GPU: its search for patterns would allocate CUDA tensors."""
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(triton.runtime.driver, "_active", NoDriver()))
        for module, name in (
            (fuse_attention, "_sfdp_init"),
            (pad_mm, "_pad_mm_init"),
            (misc_patterns, "_misc_patterns_init"),
            (joint_graph, "lazy_init"),
            (post_grad, "lazy_init"),
        ):
            patches.enter_context(mock.patch.object(module, name, lambda *args, **kwargs: None))
        patches.enter_context(mock.patch("torch.utils._triton.triton_hash_with_backend", lambda: "no device"))
        patches.enter_context(torch._inductor.config.patch(joint_graph_constant_folding=False))
        yield


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, help="names of benchmark.py's systems")
    parser.add_argument("--size", default="base")
    args = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        raise CommandError("there is no CUDA device, not even a fake one: run make check-cuda, and see --help")
    print("Kernels (GB)\n")
    print(f"| system | tokens x sentences | {' | '.join(COLUMNS)} |\n{'| --- ' * (len(COLUMNS) + 2)}|")
    with code_generation():
        for system in args.systems:
            for tokens, sentences in SHAPES:
                cells = [cell(system, tokens, sentences, args.size, parts) for parts in COLUMNS.values()]
                print(f"| {system} | {tokens:,} x {sentences} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Estimate a training step on a GPU that is not there: kernels, bytes and time. An estimate, not a measurement.

    PYTHONPATH=scripts LD_PRELOAD=.venv-cuda/libcuda.so.1 .venv-cuda/bin/python research/gpu_estimate.py

after make check-cuda, which makes what this needs.

The models run in bf16 on fake tensors, forward and backward, without the optimizer. "flash" is fairseq's transformer
with torch's flash attention, which takes no padding; "Triton" is Luna with --luna-kernel triton. A kernel, which is an
operator that is not a view, takes the largest of 4 microseconds, its bytes at 3.0 TB/s, and its multiplications and
additions at 0.6 of 798 TFLOP/s, in fp32 at 35. Bytes: each operand read once, each result written once.
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

from argparse import Namespace

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmarks.systems import build
from fairseq_luna.command_line import CommandError, Parser, command
from fairseq_luna.ops import luna_causal_attention as luna
from shared.fake_device import on_fake_device, tensors

SECONDS_A_KERNEL = 4e-6
BYTES_A_SECOND = 3.0e12
OPERATIONS_A_SECOND = {torch.bfloat16: 0.6 * 798e12, torch.float32: 35e12}
FREE = (
    "_unsafe_view",
    "_reshape_alias",
    "empty",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    "empty_strided",
    "detach",
)
FILLED = (
    "zeros",
    "zeros_like",
    "new_zeros",
    "zero_",
    "fill_",
    "ones",
    "ones_like",
    "new_ones",
    "full",
    "full_like",
    "arange",
)
SELECTED = ("embedding", "index_select", "gather", "index")
# Kernels of an operator, where it is more than one.
KERNELS = {"_scaled_dot_product_flash_attention_backward": 3, "_scaled_dot_product_efficient_attention_backward": 3}
KERNELS |= {"native_layer_norm_backward": 2, "cumsum": 2}
SHAPES = ((25, 328), (512, 16), (2048, 4), (4096, 2))


class System(NamedTuple):
    """A name of benchmark.py's systems, and whether flash attention or Luna's kernels take part."""

    name: str
    flash: bool = False
    kernels: bool = False


SYSTEMS = {
    "transformer": System("transformer"),
    "flash": System("transformer", flash=True),
    "flash, chunked loss": System("transformer-chunked-loss", flash=True),
    "Luna": System("luna"),
    "Luna, chunked loss": System("luna-chunked-loss"),
    "Luna, chunked loss, Triton": System("luna-chunked-loss", kernels=True),
}


class Estimate(TorchDispatchMode):
    """Adds up while it is entered. Fake tensors have no data: what is read of them is that something is padded."""

    def __init__(self, *, shortest: int, padded: bool = True) -> None:
        super().__init__()
        self.numbers = {torch.bool: padded, torch.int64: shortest}
        self.launches, self.bytes, self.seconds = 0, 0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense" and args[0].is_cuda:
            return self.numbers[args[0].dtype]
        out = func(*args, **(kwargs or {}))
        computes = func.namespace != "prim" and not func.is_view and name not in FREE
        if not computes or not any(x.is_cuda for x in tensors((args, kwargs, out))):
            return out
        inputs, results = tensors((args, kwargs)), tensors(out)
        operations, dtype = 0, next((x.dtype for x in inputs if x.is_floating_point()), torch.float32)
        if count := flop_registry.get(func.overloadpacket):
            causal = "flash" in name and any(arg is True for arg in args)
            operations = count(*args, **(kwargs or {}), out_val=out) // (2 if causal else 1)
        self.add(moved(name, inputs, results), operations, dtype, kernels=KERNELS.get(name, 1))
        return out

    def add(self, moved: int, operations: int = 0, dtype: torch.dtype = torch.bfloat16, *, kernels: int = 1) -> None:
        work = max(
            moved / BYTES_A_SECOND, operations / OPERATIONS_A_SECOND.get(dtype, OPERATIONS_A_SECOND[torch.float32])
        )
        self.launches += kernels
        self.bytes += moved
        self.seconds += max(kernels * SECONDS_A_KERNEL, work)


def moved(name: str, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """Bytes that an operator reads and writes."""
    written = sum(map(size, results))
    if name in FILLED:
        return written
    if name in SELECTED:
        return 2 * written
    distinct = {(x.untyped_storage()._cdata, x.storage_offset(), x.shape, x.stride()): size(x) for x in inputs}
    return sum(distinct.values()) + written


def size(x: Tensor) -> int:
    """Bytes of a tensor, without what is broadcast."""
    elements = 1
    for length, stride in zip(x.shape, x.stride(), strict=True):
        elements *= length if stride else 1
    return elements * x.element_size()


def flash(self: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, attn_mask: Any = None, **__: Any) -> Any:
    """fairseq's attention by torch's flash attention, which takes no padding, with one product for its projections."""

    def projected(x: Tensor, *projections: Any) -> Iterator[Tensor]:
        weight, bias = (torch.cat([getattr(p, name) for p in projections]) for name in ("weight", "bias"))
        for part in F.linear(x, weight, bias).chunk(len(projections), -1):
            yield part.view(*part.shape[:2], self.num_heads, -1).permute(1, 2, 0, 3)

    if self.self_attention:
        q, k, v = projected(query, self.q_proj, self.k_proj, self.v_proj)
    else:
        (q,) = projected(query, self.q_proj)
        k, v = projected(key, self.k_proj, self.v_proj)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=attn_mask is not None)
    return self.out_proj(y.permute(2, 0, 1, 3).reshape(query.shape)), None


def kernels_of(estimate: Callable[[], Estimate]) -> Callable[..., tuple[Tensor, None]]:
    """In place of Luna's Triton kernels, for tied keys and values: what they read and write, by their docstrings."""

    class Launches(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, scores: Tensor) -> Tensor:
            chunks = -(-q.shape[2] // 64)
            state = 4 * chunks * q.shape[0] * q.shape[1] * q.shape[3] * scores.shape[3]
            ctx.save_for_backward(q, k, scores)
            ctx.state = state
            if chunks > 1:
                estimate().add(size(k) + size(scores) + state)
                estimate().add(2 * state)
            estimate().add(3 * size(q) + size(scores) + state)
            return torch.empty_like(q)

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
            q, k, scores = ctx.saved_tensors
            in_fp32 = 2 * 4 * scores.numel()  # the unpack weights and the gradients of their scores
            estimate().add(4 * size(q) + size(scores) + 2 * ctx.state + in_fp32)
            estimate().add(2 * ctx.state)
            estimate().add(4 * size(q) + 2 * size(scores) + ctx.state + in_fp32)
            return torch.empty_like(q), torch.empty_like(k), torch.empty_like(scores)

    return lambda q, k, v, scores, **_: (Launches.apply(q, k, scores), None)


@contextmanager
def changed(system: System, estimate: Callable[[], Estimate]) -> Iterator[None]:
    attention = flash if system.flash else MultiheadAttention.forward
    kernels = {"torch": kernels_of(estimate)} if system.kernels else {}
    with mock.patch.object(MultiheadAttention, "forward", attention), mock.patch.dict(luna.KERNELS, kernels):
        yield


def estimated(system: System, tokens: int, sentences: int, size: str = "base") -> Estimate:
    """A step on ``sentences`` sources and targets of ``tokens`` words."""
    model, task, cfg = build(Namespace(device="cpu", dtype="float32", size=size), system.name, tokens)
    criterion = task.build_criterion(cfg.criterion)
    padded = not system.flash
    estimate = Estimate(shortest=tokens - padded, padded=padded)
    with on_fake_device(model, torch.bfloat16) as fake_model, changed(system, lambda: estimate):
        source, prefix, target = (torch.empty(sentences, tokens, dtype=torch.int64, device="cuda") for _ in range(3))
        lengths = torch.empty(sentences, dtype=torch.int64, device="cuda")
        inputs = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": prefix}
        fake_model.train()
        with estimate:
            criterion(fake_model, {"net_input": inputs, "target": target, "ntokens": tokens * sentences})[0].backward()
    return estimate


@command
def main(arguments: Sequence[str] | None = None) -> None:
    Parser(__doc__).parse_args(arguments)
    if not torch.cuda.is_available():
        raise CommandError("there is no CUDA device, not even a fake one: run make check-cuda, and see --help")
    print("Milliseconds, estimated (kernels; GB)\n")
    print(f"| tokens x sentences | {' | '.join(SYSTEMS)} |\n{'| --- ' * (len(SYSTEMS) + 1)}|")
    for tokens, sentences in SHAPES:
        found = [estimated(system, tokens, sentences) for system in SYSTEMS.values()]
        cells = [f"{1000 * step.seconds:.1f} ({step.launches:,}; {step.bytes / 1e9:.0f})" for step in found]
        print(f"| {tokens:,} x {sentences} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

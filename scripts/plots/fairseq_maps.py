"""The weights of fairseq's multi-head attention to the source."""

from collections.abc import Iterator
from contextlib import contextmanager

from fairseq.modules import MultiheadAttention
from torch import Tensor


@contextmanager
def recorded(module: MultiheadAttention) -> Iterator[list[Tensor]]:
    """Record the weights ``(H, T, S)`` of the first sentence of each forward pass of ``module``.

    Only for attention to the source: in self-attention fairseq may use a fast path that averages the heads.
    """
    seen: list[Tensor] = []

    def before_forward(module: MultiheadAttention, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return args, {**kwargs, "need_weights": True, "need_head_weights": True}

    def after_forward(module: MultiheadAttention, args: tuple, output: tuple[Tensor, Tensor]) -> None:
        seen.append(output[1][:, 0])

    handles = [
        module.register_forward_pre_hook(before_forward, with_kwargs=True),
        module.register_forward_hook(after_forward),
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()

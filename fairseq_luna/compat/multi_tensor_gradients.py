"""fairseq's optimizers copy, clear and measure gradients tensor by tensor, and a GPU launches a kernel for each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import utils
from fairseq.optim import FairseqOptimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin as HalfPrecision
from torch import Tensor

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method
from fairseq_luna.optim.tensor_lists import has_multi_tensor_kernels


class PerTensorGradients(Patch):
    """fairseq's optimizers copy, clear and measure gradients tensor by tensor.

    A GPU launches a kernel for each (fairseq 0.12.2, which also scales them so, and fairseq-fixed 0.12.3.1; copies
    exist in half precision only). With this patch there is one multi-tensor call for all tensors. On a CPU every number
    stays the same; on a GPU the norm may be summed in another order. fairseq itself still handles sparse and missing
    gradients, experts, several devices and NVIDIA's apex.
    """

    name = "multi-tensor"
    summary = "optimizers copied, cleared and measured gradients one by one; all in one call"

    def is_needed(self) -> bool:
        """Whether fairseq clears each gradient by a call of its own."""
        cleared: list[None] = []
        gradient = SimpleNamespace(zero_=lambda: cleared.append(None))
        optimizer = SimpleNamespace(
            fp16_params=[], fp32_params=[SimpleNamespace(grad=gradient)], has_flat_params=False, scaler=None
        )
        with suppress(TypeError):  # a multi-tensor call accepts tensors only
            HalfPrecision.zero_grad(optimizer)
        return len(cleared) == 1

    def apply(self) -> None:
        for owner, name, replacement in REPLACED:
            wrap_method(owner, name)(replacement)


@contextmanager
def _with_only(optimizer: Any, params: Sequence[Tensor], params32: Sequence[Tensor]) -> Iterator[None]:
    """Leave only these parameters to fairseq's method."""
    every = optimizer.fp16_params, optimizer.fp32_params
    optimizer.fp16_params, optimizer.fp32_params = params, params32
    try:
        yield
    finally:
        optimizer.fp16_params, optimizer.fp32_params = every


def _parameters_and_copies(optimizer: Any) -> list[tuple[Tensor, Tensor]]:
    """Each trained parameter and its copy in fp32."""
    return [pair for pair in zip(optimizer.fp16_params, optimizer.fp32_params, strict=False) if pair[0].requires_grad]


def _views_of_flat_vector(flat: Tensor, params: Sequence[Tensor]) -> Sequence[Tensor]:
    """The part of fairseq's vector of all parameters that belongs to each of ``params``."""
    sizes = [p.numel() for p in params]
    return flat[: sum(sizes)].split(sizes)


def _flattened(optimizer: Any, params: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """fairseq's vector for each device, and the parameters on that device."""
    for device, flat in optimizer.fp32_params.items():
        own = [p for p in params if p.device.index == device]
        if own:
            yield flat, own


def _sync_fp16_grads_to_fp32(original: Callable[[Any], None], self: Any) -> None:
    if not self._needs_sync:
        return
    if self.has_flat_params:
        if not _copy_to_vectors(self):
            original(self)
        self._needs_sync = False
        return
    copied, others = [], []
    for p, p32 in _parameters_and_copies(self):
        if p.grad is not None and p32.grad is not None and p.grad.layout == torch.strided:
            copied.append((p32.grad.data, p.grad.data))
        else:
            others.append((p, p32))
    _copy_all(copied)
    with _with_only(self, [p for p, _ in others], [p32 for _, p32 in others]):
        original(self)


def _copy_to_vectors(optimizer: Any) -> bool:
    """Copy the gradients to fairseq's vectors, zeros for a missing one; False if one is sparse."""
    trained = [p for p in optimizer.fp16_params if p.requires_grad]
    if any(p.grad is not None and p.grad.layout != torch.strided for p in trained):
        return False
    for flat, params in _flattened(optimizer, trained):
        grads = [p.data.new_zeros(p.shape) if p.grad is None else p.grad.data for p in params]
        parts = zip(_views_of_flat_vector(flat.grad, params), (grad.view(-1) for grad in grads), strict=True)
        _copy_all(list(parts))
    return True


def _sync_fp32_params_to_fp16(original: Callable[[Any], None], self: Any) -> None:
    if self.has_flat_params:
        for flat, params in _flattened(self, self.fp16_params):
            places = _views_of_flat_vector(flat.data, params)
            _copy_all([(p.data, place.view_as(p)) for p, place in zip(params, places, strict=True)])
        return
    _copy_all([(p.data, p32.data) for p, p32 in _parameters_and_copies(self)])


def _copy_all(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copy each second tensor to the first."""
    if pairs:
        torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])


def _zero_grad(original: Callable[[Any], None], self: Any) -> None:
    if self.has_flat_params:
        return original(self)
    grads = [p32.grad for p32 in self.fp32_params if p32.grad is not None]
    if grads:
        torch._foreach_zero_(grads)
    with _with_only(self, self.fp16_params, []):
        original(self)


def _multiply_grads(original: Callable[[Any, Any], None], self: Any, c: Any) -> None:
    grads = [p.grad.data for p in self.params if p.grad is not None]
    if not _are_alike(grads) or (torch.is_tensor(c) and c.dim() > 0):
        return original(self, c)
    device, dtype = grads[0].device, grads[0].dtype
    if has_multi_tensor_kernels(device):
        # A factor of another dtype makes the call a loop; the product with one gradient rounds it as well.
        c = c.to(device, dtype) if torch.is_tensor(c) else c
    elif dtype != torch.float32:  # where the call rounds the factor to half precision, and the product does not
        return original(self, c)
    else:
        c = c.to(device) if torch.is_tensor(c) else c
    torch._foreach_mul_(grads, c)


def _are_alike(grads: list[Tensor]) -> bool:
    """Whether one call can take all gradients; False if there are none."""
    kinds = {(grad.device, grad.dtype, grad.layout) for grad in grads}
    return len(kinds) == 1 and grads[0].layout == torch.strided


@torch.no_grad()
def _clip_grad_norm(
    original: Callable[..., Tensor],
    params: Tensor | Iterable[Tensor | None],
    max_norm: float,
    aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    params = [params] if isinstance(params, Tensor) else list(params)
    grads = [p.grad.detach() for p in params if p is not None and p.grad is not None]
    special = utils.multi_tensor_l2norm_available or any(hasattr(p, "expert") for p in params)
    if special or len(grads) < 2 or not _are_alike(grads) or (max_norm > 0 and grads[0].dtype != torch.float32):
        return original(params, max_norm, aggregate_norm_fn)
    total = torch.norm(torch.stack(torch._foreach_norm(grads, 2, dtype=torch.float32)))
    if aggregate_norm_fn is not None:
        total = aggregate_norm_fn(total)
    if max_norm > 0:
        torch._foreach_mul_(grads, (float(max_norm) / (total + 1e-6)).clamp_(max=1))
    return total


REPLACED: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (HalfPrecision, "_sync_fp16_grads_to_fp32", _sync_fp16_grads_to_fp32),
    (HalfPrecision, "_sync_fp32_params_to_fp16", _sync_fp32_params_to_fp16),
    (HalfPrecision, "zero_grad", _zero_grad),
    (FairseqOptimizer, "multiply_grads", _multiply_grads),
    (utils, "clip_grad_norm_", _clip_grad_norm),
)

"""Compare the Triton form with the plain torch form where it is first used; if they differ, it is left out."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import torch_form

# The largest difference relative to the largest element. Half precision is rounded at the end of both forms.
TOLERANCES = {torch.float32: 1e-3, torch.float16: 5e-3, torch.bfloat16: 3e-2}


RESULTS = ("the output", *(f"the gradient of {name}" for name in ("q", "k", "v", "the scores")))


Form = Callable[..., Tensor]


_verdicts: dict[Any, bool] = {}


def agrees(fused: Form, q: Tensor, k: Tensor, v: Tensor, scores: Tensor, **options: Any) -> bool:
    """Whether ``fused`` has the outputs and gradients of the plain torch form for tensors of this kind.

    Compared once for each device, dtype, size of heads and slots, power of two of the length, and set of options; a
    difference, or an error, is one warning. With dropout, whose random numbers differ, it must also be finite.
    """
    masks = tuple(options[name].mask is None for name in ("padding", "packed_padding"))
    kind = (q.device, q.dtype, scores.dtype, q.shape[1], q.shape[3], scores.shape[3], q.shape[2].bit_length(), k is v)
    key = (fused, *kind, *masks, options["activation"], options["dropout_p"])
    if key not in _verdicts:
        problem = _describe_difference(fused, (q, k, v, scores), options)
        _verdicts[key] = problem is None
        if problem is not None:
            size = f"{tuple(q.shape)} with {scores.shape[3]} slots in {q.dtype}"
            warnings.warn(f"Luna's Triton kernels are left out for {size}: {problem}", stacklevel=4)
    return _verdicts[key]


def _describe_difference(fused: Form, inputs: Sequence[Tensor], options: dict[str, Any]) -> str | None:
    """The difference between ``fused`` and the plain torch form in words, or None."""
    without = {**options, "dropout_p": 0.0}
    try:
        fused_results, torch_results = (_results(form, inputs, without) for form in (fused, _plain_torch))
        for name, x, y in zip(RESULTS, fused_results, torch_results, strict=True):
            difference = ((x - y).abs().max() / y.abs().max().clamp(min=1e-30)).item()
            if not difference <= TOLERANCES[inputs[0].dtype]:
                return f"{name} differs from the plain torch form's by {difference:.1e} of its largest element"
        if options["dropout_p"] and not all(x.isfinite().all() for x in _results(fused, inputs, options)):
            return "with dropout it is not finite"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _plain_torch(*inputs: Tensor, **options: Any) -> Tensor:
    return torch_form.luna_causal_attention_from_scores(*inputs, **options)[0]


def _results(form: Form, inputs: Sequence[Tensor], options: dict[str, Any]) -> list[Tensor]:
    """The output at real steps and the gradients of a fixed projection of it, in fp32; tied inputs stay one tensor."""
    leaves = {x: x.detach().requires_grad_() for x in inputs}
    q, k, v, scores = (leaves[x] for x in inputs)
    with torch.enable_grad():
        y = form(q, k, v, scores, **options)
        y = options["padding"].zero(y)
        weights = torch.arange(y.numel(), device=y.device, dtype=torch.float32).cos().view(y.shape)
        gradients = torch.autograd.grad((y.float() * weights).sum(), (q, k, v, scores))
    return [x.detach().float() for x in (y, *gradients)]

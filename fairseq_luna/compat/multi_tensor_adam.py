"""fairseq's Adam computes tensor by tensor, and a GPU launches seven or more kernels for each."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from fairseq.optim.adam import Adam
from torch import Tensor

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method
from fairseq_luna.optim.tensor_lists import HALF, cast, chunks, has_multi_tensor_kernels


class PerTensorAdam(Patch):
    """fairseq's Adam computes tensor by tensor, and a GPU launches seven or more kernels for each.

    fairseq 0.12.2 and fairseq-fixed 0.12.3.1. With this patch a step is eight multi-tensor calls for all tensors: the
    same operations in the same order on the same numbers. Parameters and state, and with them checkpoints, are
    fairseq's bit for bit if torch rounds in its kernels of many tensors as in its kernels of one, as it does in its
    source. fairseq itself still handles the other cases: a gradient that is sparse or the only one, AMSGrad, NVIDIA's
    apex; and tensors on a CPU, where such a call is a loop and takes 0.9 to 1.1 of fairseq's time.
    """

    name = "adam"
    summary = "Adam computed tensor by tensor; all in eight calls"

    def is_needed(self) -> bool:
        """Whether fairseq's Adam multiplies a single tensor; a multi-tensor call accepts tensors only."""
        params = [_StandIn(), _StandIn()]
        group = {"params": params, "betas": (0.9, 0.98), "lr": 0.1, "eps": 1e-8, "weight_decay": 0}
        optimizer = SimpleNamespace(
            param_groups=[group], state={p: {"step": 0, **dict.fromkeys(STATE, p)} for p in params}
        )
        # torch has wrapped the method if there is an Adam already.
        optimizer._optimizer_step_pre_hooks = optimizer._optimizer_step_post_hooks = {}
        try:
            Adam.step(optimizer)
        except _OneByOne:
            return True
        except TypeError:
            pass
        return False

    def apply(self) -> None:
        wrap_method(Adam, "step")(_multi_tensor_step)


STATE = ("exp_avg", "exp_avg_sq")


class _OneByOne(Exception):
    """Raised where a tensor's own method would be called."""


class _StandIn:
    """The attributes of a parameter, its gradient and state that Adam reads. A tensor would import torch's compiler."""

    dtype, device, layout, is_sparse = torch.float32, torch.device("cuda"), torch.strided, False

    @property
    def data(self) -> "_StandIn":
        return self

    grad = data

    def to(self, *_: Any, **__: Any) -> "_StandIn":
        return self

    def is_contiguous(self) -> bool:
        return True

    def numel(self) -> int:
        return 1

    def mul_(self, _: object) -> NoReturn:
        raise _OneByOne


def _multi_tensor_step(original: Callable[[Adam], None], self: Adam, closure: Callable[[], Any] | None = None) -> Any:
    loss = None if closure is None else closure()
    if all(_is_usual(group) for group in self.param_groups):
        for group in self.param_groups:
            for params in _parameters_by_memory_format(group, self.state):
                _apply_update(params, [self.state[p] for p in params], group)
    else:
        original(self)
    return loss


def _is_usual(group: dict[str, Any]) -> bool:
    """Whether a group has several dense gradients, each for one parameter: then calls for all of them are faster."""
    params = [p for p in group["params"] if p.grad is not None]
    if len(params) == 1 or len(set(params)) < len(params) or group.get("amsgrad", False):
        return False
    if not all(has_multi_tensor_kernels(p.device) for p in params):
        return False
    return all(p.grad.layout == torch.strided and p.grad.dtype in (p.dtype, *HALF) for p in params)


def _parameters_by_memory_format(group: dict[str, Any], state: Any) -> Iterator[list[Any]]:
    """The parameters with a gradient in lists for one call each; counts the step.

    Tensors of other memory formats are in lists of their own: one of them would make the call a loop over all.
    """
    alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for p in group["params"]:
        if p.grad is not None:
            own = _prepared_state(state[p], p)
            own["step"] += 1
            contiguous = all(x.is_contiguous() for x in (p, p.grad, *(own[name] for name in STATE)))
            alike[p.device, p.dtype, p.grad.dtype, contiguous].append(p)
    for params in alike.values():
        yield from chunks(params)


def _prepared_state(state: dict[str, Any], p: Tensor) -> dict[str, Any]:
    """fairseq's state of a parameter, on its device, in fp32 or wider."""
    dtype = torch.float32 if p.dtype in HALF else p.dtype
    if not state:
        state["step"] = 0
        state.update({name: torch.zeros_like(p.data, dtype=dtype) for name in STATE})
    else:
        state.update({name: state[name].to(device=p.device, dtype=dtype) for name in STATE})
    return state


def _apply_update(params: list[Tensor], states: list[dict[str, Any]], group: dict[str, Any]) -> None:
    exp_avg, exp_avg_sq = ([state[name] for state in states] for name in STATE)
    dtype = exp_avg[0].dtype
    data = [p.data for p in params]
    weights, grads = cast(data, dtype), cast([p.grad.data for p in params if p.grad is not None], dtype)
    beta1, beta2 = group["betas"]

    torch._foreach_mul_(exp_avg, beta1)
    torch._foreach_add_(exp_avg, grads, alpha=1 - beta1)
    torch._foreach_mul_(exp_avg_sq, beta2)
    torch._foreach_addcmul_(exp_avg_sq, grads, grads, value=1 - beta2)
    denominators = torch._foreach_sqrt(exp_avg_sq)
    torch._foreach_add_(denominators, group["eps"])
    if group["weight_decay"] != 0:
        torch._foreach_add_(weights, weights, alpha=-group["weight_decay"] * group["lr"])
    # Parameters that some batches did not use have made fewer steps.
    rates = {step: -_bias_corrected_lr(step, beta1, beta2, group["lr"]) for step in {state["step"] for state in states}}
    torch._foreach_addcdiv_(weights, exp_avg, denominators, [rates[state["step"]] for state in states])
    if weights is not data:
        torch._foreach_copy_(data, weights)


def _bias_corrected_lr(step: int, beta1: float, beta2: float, lr: float) -> float:
    """The learning rate with Adam's corrections for averages that began at 0."""
    return lr * math.sqrt(1 - beta2**step) / (1 - beta1**step)

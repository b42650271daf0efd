"""Apollo, a diagonal quasi-Newton optimizer (Ma, arXiv 2009.13586), for any torch program.

Not to be confused with the low-rank "APOLLO" of arXiv 2412.05270.
"""

import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ..published import Difference, Published
from .apollo_update import BOUND, DEFAULT_DECAY, STATE, update
from .tensor_lists import HALF, chunks

PUBLISHED = {
    "Apollo (`--optimizer apollo`)": Published(
        "arXiv 2009.13586; the authors' fairseq-apollo",
        (
            Difference(
                "warm-up",
                "of the schedule: `--warmup-updates`",
                "of the optimizer, or of the schedule",
                "fairseq has schedules; a warm-up below 100 updates warns",
            ),
            Difference(
                "clipping",
                "`--apollo-clip-mode each` clips in the optimizer's step, with any precision",
                "before it",
                "gradients are multiplied by the scale of fp16's loss until then",
            ),
            Difference(
                "flattened or split parameters",
                "refused: `--fp16` needs `--fp16-no-flatten-grads`",
                "accepted",
                "the norms are of whole tensors",
            ),
        ),
    )
}


class Apollo(torch.optim.Optimizer):
    """Apollo: a secant equation on the averaged gradient gives a diagonal Hessian for each tensor.

    The norms of the update are taken over a whole tensor, so parameters must be neither flattened into one
    nor split. The secant equation needs gradients that change slowly: use a warm-up of some hundreds of steps or
    more, from a learning rate near 0::

        optimizer = Apollo(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1e-4, total_iters=300)

    Apollo has no momentum that a schedule could cycle: ``OneCycleLR`` and ``CyclicLR`` need ``cycle_momentum=False``.

    State per parameter: ``step`` (int) and three tensors of its shape, ``exp_avg``, ``hessian`` and
    ``direction``, in fp32 if the parameter is half precision (the arithmetic is in fp32 too), else in its
    dtype. A step also needs memory for three times 2**26 elements (2**20 on a CPU), or for three
    times one tensor if that is larger; five times for half precision.

    Args:
        params: tensors or groups, as for any torch optimizer; a group may set any of the options below.
        lr: learning rate, 0.1 in the authors' translation runs, whose norms and clipping bound the gradients; start
            with 0.01 elsewhere. Above 1 warns, and so does, on a CPU, the first update that is not finite.
        beta: decay of the gradient's running mean, in ``[0, 1)``.
        eps: keeps the norm of the last direction above zero (divided by 0.01 for ``constant``).
        rebound: lower bound of ``|B|``: ``"constant"`` (0.01) or ``"belief"`` (the largest deviation of the gradient
            from its mean).
        weight_decay: strength of the decay.
        weight_decay_type: ``"L2"`` adds it to the gradient, ``"decoupled"`` to the direction, ``"stable"``
            to the direction in units of the tensor's mean curvature. ``None``: L2 for the constant rebound,
            decoupled for belief.

    Raises:
        ValueError: if an option is out of its range, or a parameter is a part of a tensor or several in one, as FSDP
            makes them.
    """

    _diverged = False

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        beta: float = 0.9,
        eps: float = 1e-4,
        rebound: str = "constant",
        weight_decay: float = 0.0,
        weight_decay_type: str | None = None,
    ) -> None:
        options = {"lr": lr, "beta": beta, "eps": eps, "rebound": rebound}
        options |= {"weight_decay": weight_decay, "weight_decay_type": weight_decay_type}
        super().__init__(params, to_plain_values(options))
        if lr > 1:
            warnings.warn(
                f"Apollo: lr={lr} is likely to diverge; lr 10 in older notes is for a bound of 1.0 on the "
                f"curvature, here it is {BOUND}: use 0.1",
                stacklevel=2,
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, with the same checks of its options and parameters as in the constructor."""
        check_options({**self.defaults, **param_group})
        param_group.update(to_plain_values(param_group))
        super().add_param_group(param_group)
        try:
            check_whole(self.param_groups[-1]["params"])
        except ValueError:
            del self.param_groups[-1]
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict; the state of half-precision parameters stays in fp32.

        Raises:
            ValueError: if another optimizer wrote the state, or if a parameter's state has another shape or, with
                ``named_parameters()``, stands at another one's name.
        """
        for state in state_dict["state"].values():
            if not state.keys() >= {"step", *STATE}:
                raise ValueError(
                    f"Apollo: optimizer state holds {sorted(state)} instead of {['step', *STATE]}: another "
                    "optimizer wrote it; start with a fresh state (in fairseq, --reset-optimizer)"
                )
        self._refuse_other_parameters(state_dict)
        super().load_state_dict(state_dict)
        # torch has cast the state to each parameter's dtype; take the fp32 tensors from the source.
        for index, p in self._saved_with_ours(state_dict):
            if p.dtype in HALF and index in state_dict["state"]:
                for name in STATE:
                    value = state_dict["state"][index][name]
                    self.state[p][name] = value.to(p.device, torch.float32)

    def _saved_with_ours(self, state_dict: dict[str, Any]) -> Iterator[tuple[int, Tensor]]:
        """Each parameter's index in the state dict, and the parameter."""
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        current = chain.from_iterable(group["params"] for group in self.param_groups)
        return zip(saved, current, strict=False)  # torch refuses another number of parameters

    def _refuse_other_parameters(self, state_dict: dict[str, Any]) -> None:
        """Raise ValueError if the state belongs to parameters of other shapes or names."""
        advice = "give the parameters in the order of the state, or start with a fresh one (--reset-optimizer)"
        for place, (index, p) in enumerate(self._saved_with_ours(state_dict)):
            state = state_dict["state"].get(index)
            for shape in [tuple(state[name].shape) for name in STATE] if state else []:
                if shape != tuple(p.shape):
                    raise ValueError(f"Apollo: parameter {place} is {tuple(p.shape)} and its state {shape}: {advice}")
        for saved, current in zip(state_dict["param_groups"], self.param_groups, strict=False):
            before, now = saved.get("param_names", []), current.get("param_names", [])
            if before != now and sorted(before) == sorted(now):
                first = next(pair for pair in zip(now, before, strict=True) if pair[0] != pair[1])
                raise ValueError(f"Apollo: parameter {first[0]!r} stands where the state has {first[1]!r}: {advice}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient, without synchronising with the device.

        Args:
            closure: computes the gradients again and returns the loss.

        Returns:
            The closure's loss, if there is one.

        Raises:
            RuntimeError: if a gradient is sparse or complex; no parameter is changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._refuse_sparse_and_complex()
        for group in self.param_groups:
            for step, params in self._buckets(group):
                change = update(params, [self.state[p] for p in params], step, group)
                self._warn_of_divergence(change, step, group["lr"])
        return loss

    def _warn_of_divergence(self, change: Tensor, step: int, lr: float) -> None:
        """Warn once, on a CPU alone: on an accelerator reading ``change`` would make every step wait for it."""
        if self._diverged or change.device.type != "cpu" or change.isfinite().all():
            return
        self._diverged = True
        warnings.warn(
            f"Apollo: the update of step {step} is not finite: the gradient is not, or the learning rate is too high. "
            f"Start again with lr below {lr:g}, or with a warm-up of some hundreds of steps, such as torch's LinearLR",
            stacklevel=5,
        )

    def _refuse_sparse_and_complex(self) -> None:
        for p in chain.from_iterable(group["params"] for group in self.param_groups):
            if p.grad is not None and (p.grad.layout != torch.strided or p.grad.is_complex()):
                kind = f"{p.grad.layout} {p.grad.dtype}"
                raise RuntimeError(
                    f"Apollo: gradient of a {tuple(p.shape)} parameter is {kind}: it must be dense and real "
                    "(for an embedding, sparse=False)"
                )

    def _buckets(self, group: dict[str, Any]) -> Iterator[tuple[int, list[Tensor]]]:
        """Count a step; yield (step, parameters) in lists for one multi-tensor call each."""
        buckets: dict[tuple[torch.device, torch.dtype, int], list[Tensor]] = defaultdict(list)
        for p in group["params"]:
            if p.grad is None or p.numel() == 0:
                continue
            state = self.state[p]
            if not state:
                dtype = torch.float32 if p.dtype in HALF else p.dtype
                state["step"] = 0
                state.update({name: torch.zeros_like(p, dtype=dtype) for name in STATE})
            state["step"] += 1
            buckets[p.device, p.dtype, state["step"]].append(p)
        for (_, _, step), params in buckets.items():
            yield from ((step, chunk) for chunk in chunks(params))


DECAY_TYPES = ("L2", "decoupled", "stable")


def check_options(options: dict[str, Any]) -> None:
    """Raise ValueError if an option of a parameter group is out of its range."""
    ranges = {
        "lr": (lambda x: 0 <= x < math.inf, "a finite number of at least 0, such as 0.1"),
        "beta": (lambda x: 0 <= x < 1, "in [0, 1), such as 0.9"),
        "eps": (lambda x: 0 < x < math.inf, "a finite number above 0, such as 1e-4"),
        "weight_decay": (lambda x: 0 <= x < math.inf, "a finite number of at least 0, such as 1e-8"),
    }
    for name, (holds, required) in ranges.items():
        if not (isinstance(options[name], Real) and holds(options[name])):
            raise ValueError(f"Apollo: {name}={options[name]!r} must be {required}")
    choices = {"rebound": tuple(DEFAULT_DECAY), "weight_decay_type": (None, *DECAY_TYPES)}
    for name, allowed in choices.items():
        if options[name] not in allowed:
            raise ValueError(f"Apollo: {name}={options[name]!r} must be one of {allowed}")


def to_plain_values(options: dict[str, Any]) -> dict[str, Any]:
    """Convert numbers of other libraries to Python's, so that a saved state holds only tensors and plain values."""
    return {
        name: float(value) if isinstance(value, Real) and type(value) is not int else value
        for name, value in options.items()
    }


def check_whole(params: Iterable[Tensor]) -> None:
    """Raise ValueError if a parameter is a part of a tensor, or several tensors in one: Apollo's norms would differ."""
    # Not imported here, which takes time: without the import there is no such tensor.
    sharded = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ())
    for p in params:
        # Attributes that torch's first FSDP sets, and fairscale's class.
        flat = hasattr(p, "_is_flat_param") or hasattr(p, "_fsdp_flattened") or type(p).__name__ == "FlatParameter"
        if flat or isinstance(p, sharded):
            raise ValueError(
                "Apollo: the parameters are FSDP's (fully_shard, FullyShardedDataParallel), and Apollo's norms need"
                " whole tensors: use DistributedDataParallel, and ZeroRedundancyOptimizer to save memory"
            )

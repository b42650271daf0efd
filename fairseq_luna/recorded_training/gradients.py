"""The gradients of all parameters in memory of their own, which recorded steps add to."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from torch import Tensor

# Each gradient begins at a multiple of this many elements: kernels read aligned memory in larger pieces.
ALIGNMENT = 128


class FlatGradients:
    """Gradients as parts of one vector for each device and dtype.

    Every recorded step writes here, so that all graphs, ``--update-freq``, clipping and the optimizer share the memory.
    fairseq removes the gradients before an update (``p.grad = None``); :meth:`attach` puts zeros of this memory in
    their place, in one launch, and keeps what eager steps of the same update have computed.

    Args:
        parameters: those that are trained.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = list(parameters)
        kinds: dict[Any, list[Tensor]] = {}
        for p in self.parameters:
            kinds.setdefault((p.device, p.dtype), []).append(p)
        self.vectors: list[Tensor] = []
        views: dict[Tensor, Tensor] = {}
        for (device, dtype), params in kinds.items():
            sizes = [-(-p.numel() // ALIGNMENT) * ALIGNMENT for p in params]
            vector = torch.zeros(sum(sizes), device=device, dtype=dtype)
            self.vectors.append(vector)
            for p, part in zip(params, vector.split(sizes), strict=True):
                views[p] = part[: p.numel()].view(p.shape)
        self.views = [views[p] for p in self.parameters]

    def attach(self, used: Iterable[int] | None = None) -> None:
        """Make this memory the gradients of the parameters with the numbers ``used``; None: of all.

        A gradient that a parameter has already, of an eager step, is copied here.
        """
        used = range(len(self.parameters)) if used is None else used
        missing = [(self.parameters[i], self.views[i]) for i in used if self.parameters[i].grad is not self.views[i]]
        if not missing:
            return
        if len(missing) == len(self.parameters):
            self.zero()
        else:
            torch._foreach_zero_([view for _, view in missing])
        computed = [(view, p.grad) for p, view in missing if p.grad is not None]
        if computed:
            torch._foreach_copy_([view for view, _ in computed], [gradient for _, gradient in computed])
        for p, view in missing:
            p.grad = view

    def zero(self) -> None:
        for vector in self.vectors:
            vector.zero_()

    def add(self, gradients: Sequence[Tensor | None]) -> list[int]:
        """Add a gradient for each parameter, or None where there is none; return the numbers of the others."""
        used = {i: gradient for i, gradient in enumerate(gradients) if gradient is not None}
        torch._foreach_add_([self.views[i] for i in used], list(used.values()))
        return list(used)

    def copy(self) -> list[Tensor]:
        """The contents, for :meth:`restore`."""
        return [vector.clone() for vector in self.vectors]

    def restore(self, contents: Iterable[Tensor]) -> None:
        for vector, content in zip(self.vectors, contents, strict=True):
            vector.copy_(content)

    def all_reduce(self, processes: int, group: Any) -> None:
        """The mean over ``processes`` processes, as fairseq's ``LegacyDistributedDataParallel`` computes it.

        All take part with all parameters, whichever of their steps were recorded.
        """
        self.attach()
        for vector in self.vectors:
            vector.div_(processes)
            distributed_utils.all_reduce(vector, group)

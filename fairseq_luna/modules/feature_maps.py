"""Feature maps of kernel attention as modules: what is learned, and what is drawn at random."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..ops.feature_maps import (
    elu_features,
    exponential_features,
    fourier_features,
    positive_key_features,
    positive_query_features,
    softmax_features,
)
from ..ops.random_directions import orthogonal_directions
from ..usage_error import UsageError
from .redrawn_directions import RedrawnDirections

MATRICES = 500  # drawn beforehand for RFA's training


class FeatureMap(NamedTuple):
    """Features of queries and of keys for one call: each ``(B, H, T, D)`` to ``(B, H, T, R)``."""

    of_queries: Callable[[Tensor], Tensor]
    of_keys: Callable[[Tensor], Tensor]


class FeatureMapModule(nn.Module):
    """Calling it returns a :class:`FeatureMap`.

    ``normaliser`` is that of ``ops.kernel_attention``; ``key_bias`` says whether a bias of the keys has an effect.

    Args:
        num_heads: H.
        head_size: D.
    """

    normaliser = "sum"
    key_bias = True

    def __init__(self, *, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_size = head_size

    def forward(self) -> FeatureMap:
        raise NotImplementedError


class EluFeatures(FeatureMapModule):
    """Linear attention (arXiv 2006.16236): elu + 1."""

    def forward(self) -> FeatureMap:
        return FeatureMap(elu_features, elu_features)


class SoftmaxFeatures(FeatureMapModule):
    """Efficient attention (arXiv 1812.01243): softmax of a query over its channels, and of each key channel over time.

    Keys are clamped to +-30.
    """

    normaliser = "each feature"
    key_bias = False  # the softmax over time would cancel it

    def forward(self) -> FeatureMap:
        return FeatureMap(softmax_features, exponential_features)


class PositiveFeatures(RedrawnDirections, FeatureMapModule):
    """Performer (FAVOR+, arXiv 2009.14794): positive random features, whose directions all heads share.

    Args:
        num_heads, head_size: H and D.
        num_features: R; None = 4 D.
        redraw_features: draw new directions after so many updates, in training; 0 = never.

    Raises:
        UsageError: if a number is too small.
    """

    def __init__(
        self, *, num_heads: int, head_size: int, num_features: int | None = None, redraw_features: int = 1000
    ) -> None:
        super().__init__(num_heads=num_heads, head_size=head_size)
        self.num_features = number_of_features(num_features, default=4 * head_size)
        self.register_directions(redraw_features)

    def forward(self) -> FeatureMap:
        return FeatureMap(
            partial(positive_query_features, directions=self.directions),
            partial(positive_key_features, directions=self.directions),
        )

    def draw(self, generator: torch.Generator) -> Tensor:
        """``(R, D)``."""
        return orthogonal_directions(self.num_features, self.head_size, generator=generator)


class FourierFeatures(FeatureMapModule):
    """RFA (arXiv 2103.02143): random Fourier features with a learned deviation for each channel of a head.

    500 matrices are drawn beforehand, always the same. In training each call picks one for each head at random, from
    torch's generator, as dropout does. In evaluation the heads have the first of them, which are in the checkpoint.

    Args:
        num_heads, head_size: H, at most 500, and D.
        num_features: directions of a head, each for a sine and a cosine; None = 64.

    Raises:
        UsageError: if the number is too small.
    """

    normaliser = "bounded"
    matrices: Tensor

    def __init__(self, *, num_heads: int, head_size: int, num_features: int | None = None) -> None:
        super().__init__(num_heads=num_heads, head_size=head_size)
        # Here and not as a decorator, which would import torch's compiler together with this package.
        torch.compiler.assume_constant_result(normal_matrices.__wrapped__)
        self.num_features = number_of_features(num_features, default=64)
        self.sigma = nn.Parameter(torch.ones(num_heads, 1, head_size))
        self.register_buffer("matrices", self.all_matrices(torch.device("cpu"))[:num_heads].clone())

    def forward(self) -> FeatureMap:
        features = partial(fourier_features, directions=self.sigma * self.picked())
        return FeatureMap(features, features)

    def picked(self) -> Tensor:
        """The matrices of this call: ``(H, R, D)``."""
        if not self.training:
            return self.matrices
        choice = torch.randperm(MATRICES, device=self.matrices.device)[: self.num_heads]
        return self.all_matrices(self.matrices.device)[choice].to(self.matrices.dtype)

    def all_matrices(self, device: torch.device) -> Tensor:
        """``(500, R, D)``."""
        return normal_matrices(self.num_features, self.head_size, device)


@lru_cache(maxsize=8)
def normal_matrices(count: int, size: int, device: torch.device) -> Tensor:
    """RFA's matrices, ``(500, count, size)``, fp32: kept once for all layers, because there are many."""
    return torch.randn(MATRICES, count, size, generator=torch.Generator().manual_seed(0)).to(device)


def number_of_features(given: int | None, *, default: int) -> int:
    if given is not None and given < 1:
        raise UsageError(f"--num-features {given}: must be 1 or more; leave it out for {default}")
    return given or default

"""Feature maps of kernel attention as modules, with their learned and their random numbers."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..ops import feature_maps as op
from ..usage_error import ArgumentError
from .redrawn_directions import RedrawnDirections

MATRICES = 500  # of a layer of RFA, to pick from in training


class FeatureMap(NamedTuple):
    """Features of queries and of keys for one call: each ``(B, H, T, D)`` to ``(B, H, T, R)``."""

    map_queries: Callable[[Tensor], Tensor]
    map_keys: Callable[[Tensor], Tensor]


class FeatureMapModule(nn.Module):
    """Calling it returns a :class:`FeatureMap`.

    ``normalizer`` is an argument of ``ops.kernel_attention``; ``key_bias`` says whether a bias of the keys has an
    effect.

    Args:
        num_heads: H.
        head_size: D.
    """

    normalizer = "sum"
    key_bias = True

    def __init__(self, *, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_size = head_size


class EluFeatures(FeatureMapModule):
    """Linear attention (arXiv 2006.16236): elu + 1."""

    def forward(self) -> FeatureMap:
        return FeatureMap(op.elu_features, op.elu_features)


class SoftmaxFeatures(FeatureMapModule):
    """Efficient attention (arXiv 1812.01243): softmax of a query over its channels, and of each key channel over time.

    Keys are clamped to +-30.
    """

    normalizer = "each feature"
    key_bias = False  # the softmax over time would cancel it

    def forward(self) -> FeatureMap:
        return FeatureMap(op.softmax_features, op.exponential_features)


class PositiveFeatures(RedrawnDirections, FeatureMapModule):
    """Performer (FAVOR+, arXiv 2009.14794): positive random features, whose directions all heads share.

    Args:
        num_heads, head_size: H and D.
        num_features: R; None = 4 D.
        redraw_features: draw new directions every ``redraw_features`` updates, in training; 0 = never.

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
            partial(op.positive_query_features, directions=self.directions),
            partial(op.positive_key_features, directions=self.directions),
        )

    def draw(self, generator: torch.Generator) -> Tensor:
        """``(R, D)``."""
        return op.orthogonal_directions(self.num_features, self.head_size, generator=generator)


class FourierFeatures(RedrawnDirections, FeatureMapModule):
    """RFA (arXiv 2103.02143): random Fourier features with a learned deviation for each channel of a head.

    A layer has 500 matrices, a function of its seed. Each update of training picks one for each head at random. In
    evaluation the heads have the first of them, which are in the checkpoint.

    Args:
        num_heads, head_size: H, at most 500, and D.
        num_features: directions of a head, each for a sine and a cosine; None = 64.

    Raises:
        UsageError: if the number is too small.
    """

    normalizer = "bounded"
    matrices: Tensor

    def __init__(self, *, num_heads: int, head_size: int, num_features: int | None = None) -> None:
        super().__init__(num_heads=num_heads, head_size=head_size)
        self.num_features = number_of_features(num_features, default=64)
        self.sigma = nn.Parameter(torch.ones(num_heads, 1, head_size))
        self.register_directions(1, persistent=False)
        self.register_buffer("matrices", self.matrices_by_number(range(num_heads)).to(self.seed.device))

    def forward(self) -> FeatureMap:
        picked = self.directions if self.training else self.matrices
        features = partial(op.fourier_features, directions=self.sigma * picked)
        return FeatureMap(features, features)

    def draw(self, generator: torch.Generator) -> Tensor:
        """Draw a matrix for each head: ``(H, R, D)``."""
        order = torch.randperm(MATRICES, generator=generator, device=generator.device)
        return self.matrices_by_number(order[: self.num_heads].tolist())

    def matrices_by_number(self, numbers: Iterable[int]) -> Tensor:
        """The matrices with these of the 500 ``numbers``, ``(any number, R, D)``, computed when needed, to save
        memory."""
        size = self.num_features, self.head_size
        generators = (self.generator(f"matrix {number}") for number in numbers)
        return torch.stack([torch.randn(size, generator=one, device=one.device) for one in generators])

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """For checkpoints of when all layers had the same matrices, without a seed."""
        state_dict.setdefault(f"{name}.seed", self.seed)


class HedgehogFeatures(FeatureMapModule):
    """Hedgehog (arXiv 2402.04347): a softmax over learned channels and their opposites, 2 D features.

    Queries and keys of each head have a linear map of their own, which starts as the identity.
    """

    def __init__(self, *, num_heads: int, head_size: int) -> None:
        super().__init__(num_heads=num_heads, head_size=head_size)
        one, zero = torch.eye(head_size).repeat(num_heads, 1, 1), torch.zeros(num_heads, head_size)
        self.q_weight, self.q_bias = nn.Parameter(one), nn.Parameter(zero)
        self.k_weight, self.k_bias = nn.Parameter(one.clone()), nn.Parameter(zero.clone())

    def forward(self) -> FeatureMap:
        return FeatureMap(
            partial(op.hedgehog_features, weight=self.q_weight, bias=self.q_bias),
            partial(op.hedgehog_features, weight=self.k_weight, bias=self.k_bias),
        )


def number_of_features(num_features: int | None, *, default: int) -> int:
    if num_features is not None and num_features < 1:
        raise ArgumentError("num_features", num_features, f"must be 1 or more; leave it out for {default}")
    return num_features or default

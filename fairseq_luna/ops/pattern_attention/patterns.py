"""Patterns: which steps a step sees. Positions are counted among the real steps."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype


class Pattern(Protocol):
    """The steps that a step sees; a causal attention leaves out the later ones."""

    def sees(self, i: Tensor, j: Tensor, lengths: Tensor) -> Tensor:
        """Whether the step at position ``i (..., T, 1)`` sees the step at position ``j (..., 1, S)``.

        Both int64, as are the ``lengths (B,)`` of the sentences.
        """


@dataclass(frozen=True)
class Window:
    """The steps at a distance of 0, ``dilation``, 2 ``dilation``, ... up to ``window`` times ``dilation``.

    With ``first`` also the first step (Longformer, arXiv 2004.05150). With ``spans (H,)``, from 0 to the window, a head
    sees less (adaptive attention span, arXiv 1905.07799): the weight of a step at distance x is multiplied by
    ``m(x) = clamp((ramp + span - x) / ramp, 0, 1)``, before the weights of a query are divided by their sum.
    """

    window: int
    dilation: int = 1
    first: bool = False
    spans: Tensor | None = None
    ramp: int = 1

    def sees(self, i: Tensor, j: Tensor, lengths: Tensor) -> Tensor:
        distance = (i - j).abs()
        near = (distance <= self.reach) & (distance % self.dilation == 0)
        return near | (j == 0) if self.first else near

    @property
    def reach(self) -> int:
        """The largest distance."""
        return self.window * self.dilation

    def factors(self, distance: Tensor) -> Tensor:
        """m for each ``distance (..., T, S)`` if there are spans: ``(..., H, T, S)``, in fp32 for half precision."""
        assert self.spans is not None
        spans = self.spans.to(accumulation_dtype(self.spans))[:, None, None]
        return ((self.ramp + spans - distance) / self.ramp).clamp(0, 1)

    def scores(self, distance: Tensor) -> Tensor:
        """log m, to be added to the scores; it has no gradient where m is 0."""
        m = self.factors(distance)
        return m.where(m > 0, 1).log().where(m > 0, -torch.inf)


@dataclass(frozen=True)
class TopK:
    """The steps whose score is at least the ``count``-th largest (arXiv 1912.11637); more if scores are equal."""

    count: int

    def sees(self, i: Tensor, j: Tensor, lengths: Tensor) -> Tensor:
        """Every step: the scores decide."""
        return torch.ones_like(i, dtype=torch.bool) & torch.ones_like(j, dtype=torch.bool)


@dataclass(frozen=True)
class Strided:
    """A step's own block of ``stride`` steps, and the last ``summary`` steps of every block (arXiv 1904.10509)."""

    stride: int
    summary: int

    def sees(self, i: Tensor, j: Tensor, lengths: Tensor) -> Tensor:
        return (i // self.stride == j // self.stride) | (j % self.stride >= self.stride - self.summary)


@dataclass(frozen=True)
class RandomBlocks:
    """BigBird (arXiv 2007.14062): a step's own block, its two neighbors, the first and the last block, and random ones.

    The first and the last block see all steps. A sentence with fewer blocks than this sees all.

    Args:
        block_size: steps of a block.
        random: random blocks, all different, that a block sees in each head.
        seeds: ``(H,)`` int64, below 2^31: the random blocks are a function of the seed of the head, of the block and of
            the number of blocks of the sentence.
    """

    block_size: int
    random: int
    seeds: Tensor

    def sees(self, i: Tensor, j: Tensor, lengths: Tensor) -> Tensor:
        """``(B, H, T, S)`` for ``i (B, 1, T, 1)`` and ``j (B, 1, 1, S)``."""
        counts = self.counts(lengths)
        number = -(-i.shape[2] // self.block_size)
        seen, block = self.seen_blocks(counts, number), i.clamp(min=0) // self.block_size
        seen_by_step = seen.gather(2, block.expand(-1, seen.shape[1], -1, seen.shape[3]))  # (B, H, T, W)
        seen_by_block = (seen_by_step[:, :, :, None] == (j // self.block_size)[..., None]).any(-1)
        return seen_by_block | (block == 0) | (block == counts[:, None, None, None] - 1)

    def counts(self, lengths: Tensor) -> Tensor:
        """The number of blocks of sentences, at least 1."""
        return ((lengths + self.block_size - 1) // self.block_size).clamp(min=1)

    def seen_blocks(self, counts: Tensor, number: int) -> Tensor:
        """The blocks that each of ``number`` blocks sees, ``(B, H, number, W)`` int64.

        In the last dimension: the block before, own, after, first, last, random ones; all are different, or NONE. For
        sentences of ``counts (B,)`` blocks; undefined after their last block.
        """
        count, block = counts[:, None, None], torch.arange(number, device=counts.device)
        near = [
            (block - 1).masked_fill(block < 1, NONE),
            block,
            (block + 1).masked_fill(block + 1 >= count, NONE),
            (block * 0).masked_fill(block < 2, NONE),
            (count - 1).masked_fill(block > count - 3, NONE),
        ]
        seen = list(torch.broadcast_tensors(*near, count + self.seeds[:, None]))[:5]
        for draw in range(self.random):
            seen.append(self._draw_random_block(seen, draw, count, block))
        return torch.stack(seen, dim=-1)

    def _draw_random_block(self, seen: list[Tensor], draw: int, count: Tensor, block: Tensor) -> Tensor:
        """A random block that is not among ``seen``, or NONE if there is no other."""
        taken_blocks = torch.stack(seen, dim=-1).sort(dim=-1).values
        free = count - (taken_blocks != NONE).sum(-1)
        chosen = hashed(hashed(hashed(self.seeds[:, None] + draw) + block) + count) % free.clamp(min=1)
        # The number of a free block among the free ones becomes its number among all.
        for one in taken_blocks.unbind(-1):
            chosen = chosen + (chosen >= one)
        return chosen.masked_fill(free < 1, NONE)


NONE = 1 << 40  # no block: larger than any block's number


def hashed(x: Tensor) -> Tensor:
    """Numbers in [0, 2^32) that look random, for int64 from 0 on."""
    for _ in range(2):
        x = (((x >> 16) ^ x) * 0x45D9F3B) & 0xFFFFFFFF
    return (x >> 16) ^ x

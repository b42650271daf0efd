"""BigBird's attention for encoders."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..ops.pattern_attention import RandomBlocks, pattern_attention
from .pattern_attention import PatternAttention
from .pattern_projections import bigbird


class BigBirdAttention(PatternAttention):
    """Attention to neighbouring, to the first, the last and to random blocks (arXiv 2007.14062).

    The random blocks of a head are a function of its seed, which torch's generator gives when the module is made and
    which is in the checkpoint, and of the number of blocks of the sentence.

    Args:
        num_heads, options: those of :class:`.PatternProjections`, without ``pattern``.
        block_size: steps of a block.
    """

    pattern: RandomBlocks
    seeds: Tensor

    def __init__(self, *, num_heads: int, **options: Any) -> None:
        seeds = torch.randint(2**31, (num_heads,))
        super().__init__(pattern=partial(bigbird, seeds=seeds), num_heads=num_heads, **options)
        self.register_buffer("seeds", seeds)

    def attend(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        pattern = replace(self.pattern, seeds=self.seeds)
        q, k, v = self.queries_keys_values(x)
        return pattern_attention(q, k, v, pattern, padding_mask=padding_mask, dropout_p=self.dropout_p())

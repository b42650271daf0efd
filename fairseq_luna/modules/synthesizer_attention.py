"""Synthesizer, chosen by its scores: dense, random and their factorized forms."""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import synthesizer_attention as op
from ..ops.dtypes import accumulation_dtype, full_precision
from ..ops.padding import Padding, PaddingLike
from ..published import Difference, Published
from ..usage_error import ArgumentError
from .attention import CausalAttention, EncoderAttention
from .checks import NamedArguments
from .declaration import Attention, Traits
from .multihead import Multihead, split_heads
from .projection import Projections

# No code of the authors was compared: the paper alone.
PAPER = "arXiv 2005.00743"
IN_BATCHES = Difference(
    "positions",
    "of the real words of a sentence, up to `--max-source-positions` and `--max-target-positions`",
    "not said for padding",
    "a sentence has the same result in every batch",
)


class Synthesizer(NamedArguments, Multihead):
    """Synthesizer (arXiv 2005.00743): no word is compared with another one.

    At padding the result is the bias of the output projection.

    Args:
        scores: a subclass of :class:`ScoreMap`; it decides which attention this is.
        max_positions: the longest sequence, which the scores limit.
        options: those of :class:`.Multihead`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``; in a call, if a sequence is longer.
    """

    def __init__(self, *, scores: "type[ScoreMap]", max_positions: int = 1024, **options: Any) -> None:
        super().__init__(**options)
        self.max_positions = max_positions
        self.scores = scores(new=self.new, num_heads=self.num_heads, max_positions=max_positions)
        self.v_proj = self.new.input()
        self.out_proj = self.new.output()

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        self.check_length(len(x), self.max_positions, attention="a synthesizer")
        v = self.heads_of(self.v_proj, x)
        return self.output(self.scores.attention(x, v, causal=self.causal, **self.options(padding)))


class SynthesizerAttention(Synthesizer, EncoderAttention):
    """Bidirectional self-attention for encoders. Arguments: :class:`Synthesizer`."""


class SynthesizerCausalAttention(Synthesizer, CausalAttention):
    """Causal self-attention for decoders. Arguments: :class:`Synthesizer`.

    The state is the values of the steps before, half of what softmax attention keeps.
    """

    State = op.Values

    def attend_step(self, x: Tensor, padding: Padding, state: op.Values | None) -> tuple[Tensor, op.Values]:
        v = self.heads_of(self.v_proj, x)
        steps = op.columns_of_next(state)
        self.check_length(steps, self.max_positions, attention="a synthesizer")
        scores = self.scores.rows(x, op.next_positions(state, v), steps)
        y, state = op.synthesizer_attention_step(scores, v, state, **self.options(padding))
        return self.output(y), state

    def state_with_room(self, state: op.Values, tokens: int) -> op.Values:
        return op.with_room(state, min(tokens, self.max_positions))


class ScoreMap(nn.Module):
    """Gives the scores of positions, for each head.

    Args:
        new: creates linear maps.
        num_heads: H.
        max_positions: N, the number of positions.
    """

    def __init__(self, *, new: Projections, num_heads: int, max_positions: int) -> None:
        super().__init__()
        self.num_heads, self.max_positions = num_heads, max_positions

    def forward(self, x: Tensor, *, padding: PaddingLike = None) -> Tensor:
        """All scores of ``x (T, B, C)``, by position among its real steps: ``(B or 1, H, T, T)``.

        ``padding`` is that of the steps, anywhere.
        """
        raise NotImplementedError

    def attention(self, x: Tensor, v: Tensor, *, padding: Padding, **options: Any) -> Tensor:
        """Softmax attention with the scores of ``x (T, B, C)`` to ``v (B, H, T, D)``, in the shape of ``v``.

        ``options`` are those of :func:`.synthesizer_attention`.
        """
        scores = self(x, padding=padding)
        return op.synthesizer_attention(scores, v, padding=padding, **options)

    def rows(self, x: Tensor, positions: Tensor, columns: int) -> Tensor:
        """The scores of the first ``columns`` positions for a step ``x (1, B, C)``: ``(B or 1, H, 1, columns)``.

        ``positions (B or 1, 1)`` int64 is that of the step.
        """
        raise NotImplementedError


class ContentScores(ScoreMap):
    """Scores that are made of the word that reads, without the word that it reads."""

    def features(self, x: Tensor) -> Tensor:
        """What they are made of, for ``x (T, B, C)``: ``(B, H, T, any number)``."""
        raise NotImplementedError

    def scores(self, features: Tensor, columns: int) -> Tensor:
        """``(B, H, T, columns)``."""
        raise NotImplementedError

    def forward(self, x: Tensor, *, padding: PaddingLike = None) -> Tensor:
        return self.scores(Padding.of(padding).pack_left(self.features(x)), len(x))

    def rows(self, x: Tensor, positions: Tensor, columns: int) -> Tensor:
        return self.scores(self.features(x), columns)


class DenseScores(ContentScores):
    """``W_2 relu(W_1 x)``; ``W_1`` has a bias, ``W_2`` is of one head and has N rows, the keys of positions."""

    def __init__(self, *, new: Projections, num_heads: int, max_positions: int) -> None:
        super().__init__(new=new, num_heads=num_heads, max_positions=max_positions)
        self.hidden = new.input()
        size = new.size // num_heads
        self.positions = nn.Parameter(torch.randn(num_heads, max_positions, size) * size**-0.5)

    def features(self, x: Tensor) -> Tensor:
        return split_heads(F.relu(self.hidden(x)), self.num_heads)

    def scores(self, features: Tensor, columns: int) -> Tensor:
        dtype = accumulation_dtype(features)
        with full_precision(features):
            return features.to(dtype) @ self.positions[:, :columns].to(dtype).mT

    def attention(self, x: Tensor, v: Tensor, *, padding: Padding, **options: Any) -> Tensor:
        keys = self.positions[:, : len(x)]
        return op.position_attention(self.features(x), keys, v, padding=padding, **options)


class FactorizedDenseScores(ContentScores):
    """``(A x)[p // b] (B x)[p % b]`` for position p: about 2 sqrt(N) numbers of a word make its N scores.

    The paper (arXiv 2005.00743) tiles a and b numbers, a b = N, to N each and multiplies them so that
    scores within a block differ; its authors published no code of it. Tiling both as ``[p % a] [p % b]`` would not
    do that: positions would repeat after the least common multiple, which for a = b = 32 is 32 of 1,024. Here each
    position has a pair of its own for every a and b.
    """

    def __init__(self, *, new: Projections, num_heads: int, max_positions: int) -> None:
        super().__init__(new=new, num_heads=num_heads, max_positions=max_positions)
        self.block_size = round(max_positions**0.5)
        self.blocks = -(-max_positions // self.block_size)
        self.of_block = new.input(outputs=num_heads * self.blocks)
        self.of_place = new.input(outputs=num_heads * self.block_size)

    def features(self, x: Tensor) -> Tensor:
        parts = (split_heads(projection(x), self.num_heads) for projection in (self.of_block, self.of_place))
        return torch.cat([*parts], dim=-1)

    def scores(self, features: Tensor, columns: int) -> Tensor:
        features = features.to(accumulation_dtype(features))  # fp16 has no product of 300 and 300
        blocks = features[..., : -(-columns // self.block_size), None]
        return (blocks * features[..., None, self.blocks :]).flatten(-2)[..., :columns]


class RandomScores(ScoreMap):
    """A learned matrix ``(H, N, N)``, random at first: the words have no part in it.

    Raises:
        UsageError: if it has more than ``LARGEST`` numbers.
    """

    LARGEST = 2**28

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        longest = math.isqrt(self.LARGEST // self.num_heads)
        if self.max_positions > longest:
            raise ArgumentError(
                "max_positions",
                self.max_positions,
                f"synthesizer-random learns a score for each pair of positions; choose at most {longest}, or"
                " synthesizer-factorized-random",
            )
        self.matrix = nn.Parameter(torch.randn(self.num_heads, self.max_positions, self.max_positions))

    def forward(self, x: Tensor, *, padding: PaddingLike = None) -> Tensor:
        return self.matrix[None, :, : len(x), : len(x)]

    def rows(self, x: Tensor, positions: Tensor, columns: int) -> Tensor:
        return self.matrix[:, positions, :columns].transpose(0, 1)


class FactorizedRandomScores(ScoreMap):
    """A learned matrix of rank 8, as a product of ``(H, N, 8)`` and ``(H, 8, N)``."""

    RANK = 8

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Elements of the product have variance 1.
        shape, scale = (self.num_heads, self.max_positions, self.RANK), self.RANK**-0.25
        self.left = nn.Parameter(torch.randn(shape) * scale)
        self.right = nn.Parameter(torch.randn(shape).mT.contiguous() * scale)

    def forward(self, x: Tensor, *, padding: PaddingLike = None) -> Tensor:
        return (self.left[:, : len(x)] @ self.right[:, :, : len(x)])[None]

    def rows(self, x: Tensor, positions: Tensor, columns: int) -> Tensor:
        return (self.left[:, positions] @ self.right[:, None, :, :columns]).transpose(0, 1)


ATTENTIONS = (
    Attention(
        name="synthesizer-dense",
        published=Published(
            PAPER,
            (
                Difference("biases", "of the first map", "of both maps", "the second one is the keys of positions"),
                IN_BATCHES,
            ),
        ),
        encoder=partial(SynthesizerAttention, scores=DenseScores),
        decoder=partial(SynthesizerCausalAttention, scores=DenseScores),
        source="its scores do not depend on the words that are read",
        paper="https://arxiv.org/abs/2005.00743",
        traits=Traits(training_time="n²", decoder_state="grows, values only", quadratic=True, state_grows=True),
        has_max_positions=True,
    ),
    Attention(
        name="synthesizer-random",
        published=Published(
            PAPER,
            (Difference("scores", "learned", "learned or fixed", "fixed ones were worse in the paper"), IN_BATCHES),
        ),
        encoder=partial(SynthesizerAttention, scores=RandomScores),
        decoder=partial(SynthesizerCausalAttention, scores=RandomScores),
        source="its scores do not depend on the words that are read",
        paper="https://arxiv.org/abs/2005.00743",
        traits=Traits(training_time="n²", decoder_state="grows, values only", quadratic=True, state_grows=True),
        has_max_positions=True,
    ),
    Attention(
        name="synthesizer-factorized-dense",
        published=Published(
            PAPER,
            (
                Difference(
                    "tiling",
                    "one vector repeats each of its numbers, the other repeats as a whole",
                    "both are tiled, how is not said",
                    "if both repeated as a whole, positions would have the same scores after some steps",
                ),
                IN_BATCHES,
            ),
        ),
        encoder=partial(SynthesizerAttention, scores=FactorizedDenseScores),
        decoder=partial(SynthesizerCausalAttention, scores=FactorizedDenseScores),
        source="its scores do not depend on the words that are read",
        paper="https://arxiv.org/abs/2005.00743",
        traits=Traits(training_time="n²", decoder_state="grows, values only", quadratic=True, state_grows=True),
        has_max_positions=True,
    ),
    Attention(
        name="synthesizer-factorized-random",
        published=Published(PAPER, (IN_BATCHES,)),
        encoder=partial(SynthesizerAttention, scores=FactorizedRandomScores),
        decoder=partial(SynthesizerCausalAttention, scores=FactorizedRandomScores),
        source="its scores do not depend on the words that are read",
        paper="https://arxiv.org/abs/2005.00743",
        traits=Traits(training_time="n²", decoder_state="grows, values only", quadratic=True, state_grows=True),
        has_max_positions=True,
    ),
)

"""Synthesizer (arXiv 2005.00743): softmax attention whose scores compare no token with another one.

For each head, with scores A of positions, which decide the attention::

    y_t = sum_j softmax_j( A_tj ) v_j,      out = W_o [y of all heads]

=============================  ====================================================================
name                           A_t for N positions
=============================  ====================================================================
synthesizer-dense              W_2 relu(W_1 x_t + b)
synthesizer-random             row t of a learned (N, N) matrix
synthesizer-factorized-dense   products of about 2 sqrt(N) numbers, two linear maps of x_t
synthesizer-factorized-random  row t of a learned matrix of rank 8
=============================  ====================================================================

Parameters: ``v_proj``, ``out_proj`` (W_o), and the parameters of ``scores``. The authors published no code;
    differences from the paper's text are in the declarations at the end of the file.
"""

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
from .argument_checks import NamedArguments
from .attention import SelfAttention
from .declaration import Attention, Traits
from .multihead import split_heads
from .projection import LinearMaps

PAPER = "arXiv 2005.00743"
IN_BATCHES = Difference(
    "positions",
    "of the real tokens of a sentence, up to `--max-source-positions` and `--max-target-positions`",
    "not said for padding",
    "a sentence has the same result in every batch",
)


class SynthesizerAttention(NamedArguments, SelfAttention):
    """Self-attention with scores that compare no token with another one.

    The state of a decoder is the values of the earlier steps, half of what softmax attention caches. At padding the
    result is the bias of the output projection.

    Args:
        scores: a subclass of :class:`ScoreMap`; it decides which attention this is.
        max_positions: N, the longest sequence, which the scores limit.
        options: arguments of :class:`.SelfAttention`.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``; in a call, if a sequence is longer.
    """

    State = op.PositionValues

    def __init__(self, *, scores: "type[ScoreMap]", max_positions: int = 1024, **options: Any) -> None:
        super().__init__(**options)
        self.max_positions = max_positions
        self.scores = scores(linear=self.linear, num_heads=self.num_heads, max_positions=max_positions)
        self.v_proj = self.linear.input_projection()
        self.out_proj = self.linear.output_projection()

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        self.check_length(len(x), self.max_positions, attention="a synthesizer")
        v = self.project_heads(self.v_proj, x)
        return self.project_output(self.scores.attention(x, v, causal=self.causal, **self.op_options(padding)))

    def attend_step(
        self, x: Tensor, padding: Padding, state: op.PositionValues | None
    ) -> tuple[Tensor, op.PositionValues]:
        v = self.project_heads(self.v_proj, x)
        steps = op.columns_of_next(state)
        self.check_length(steps, self.max_positions, attention="a synthesizer")
        scores = self.scores.rows(x, op.next_positions(state, v), steps)
        y, state = op.synthesizer_attention_step(scores, v, state, **self.op_options(padding))
        return self.project_output(y), state

    def state_with_room(self, state: op.PositionValues, max_steps: int) -> op.PositionValues:
        return op.allocate_values(state, min(max_steps, self.max_positions))


class ScoreMap(nn.Module):
    """Gives the scores of positions, for each head.

    Args:
        linear: creates linear maps.
        num_heads: H.
        max_positions: N, the number of positions.
    """

    def __init__(self, *, linear: LinearMaps, num_heads: int, max_positions: int) -> None:
        super().__init__()
        self.num_heads, self.max_positions = num_heads, max_positions

    def forward(self, x: Tensor, *, padding: PaddingLike = None) -> Tensor:
        """All scores of ``x (T, B, C)``, by position among its real steps: ``(B or 1, H, T, T)``.

        ``padding`` of the steps may be anywhere.
        """
        raise NotImplementedError

    def attention(self, x: Tensor, v: Tensor, *, padding: Padding, **options: Any) -> Tensor:
        """Softmax attention with the scores of ``x (T, B, C)`` to ``v (B, H, T, D)``, in the shape of ``v``.

        ``options`` are arguments of :func:`.synthesizer_attention`.
        """
        scores = self(x, padding=padding)
        return op.synthesizer_attention(scores, v, padding=padding, **options)

    def rows(self, x: Tensor, positions: Tensor, columns: int) -> Tensor:
        """The scores of the first ``columns`` positions for a step ``x (1, B, C)``: ``(B or 1, H, 1, columns)``.

        ``positions (B or 1, 1)`` int64 is the position of the step.
        """
        raise NotImplementedError


class ContentScores(ScoreMap):
    """Scores from the reading token alone, without the token that it reads."""

    def features(self, x: Tensor) -> Tensor:
        """The numbers from which the scores of ``x (T, B, C)`` are computed: ``(B, H, T, any number)``."""
        raise NotImplementedError

    def scores(self, features: Tensor, columns: int) -> Tensor:
        """``(B, H, T, columns)``."""
        raise NotImplementedError

    def forward(self, x: Tensor, *, padding: PaddingLike = None) -> Tensor:
        return self.scores(Padding.of(padding).pack_left(self.features(x)), len(x))

    def rows(self, x: Tensor, positions: Tensor, columns: int) -> Tensor:
        return self.scores(self.features(x), columns)


class DenseScores(ContentScores):
    """``W_2 relu(W_1 x)``; ``W_1`` has a bias, each head has its own ``W_2`` of N rows, the keys of positions."""

    def __init__(self, *, linear: LinearMaps, num_heads: int, max_positions: int) -> None:
        super().__init__(linear=linear, num_heads=num_heads, max_positions=max_positions)
        self.hidden = linear.input_projection()
        size = linear.size // num_heads
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
    """``(A x)[p // b] (B x)[p % b]`` for position p: about 2 sqrt(N) numbers of a token make its N scores.

    The paper (arXiv 2005.00743) tiles a and b numbers, a b = N, to N each and multiplies them so that
    scores within a block differ; its authors published no code of it. Tiling both as ``[p % a] [p % b]`` would not
    do that: positions would repeat after the least common multiple, which for a = b = 32 is 32 of 1,024. Here each
    position has a pair of its own for every a and b.
    """

    def __init__(self, *, linear: LinearMaps, num_heads: int, max_positions: int) -> None:
        super().__init__(linear=linear, num_heads=num_heads, max_positions=max_positions)
        self.block_size = round(max_positions**0.5)
        self.blocks = -(-max_positions // self.block_size)
        self.of_block = linear.input_projection(outputs=num_heads * self.blocks)
        self.of_place = linear.input_projection(outputs=num_heads * self.block_size)

    def features(self, x: Tensor) -> Tensor:
        parts = (split_heads(projection(x), self.num_heads) for projection in (self.of_block, self.of_place))
        return torch.cat([*parts], dim=-1)

    def scores(self, features: Tensor, columns: int) -> Tensor:
        features = features.to(accumulation_dtype(features))  # fp16 has no product of 300 and 300
        blocks = features[..., : -(-columns // self.block_size), None]
        return (blocks * features[..., None, self.blocks :]).flatten(-2)[..., :columns]


class RandomScores(ScoreMap):
    """A learned matrix ``(H, N, N)``, random at first: the tokens have no part in it.

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
        decoder=partial(SynthesizerAttention, scores=DenseScores, causal=True),
        source="its scores do not depend on the tokens that are read",
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
        decoder=partial(SynthesizerAttention, scores=RandomScores, causal=True),
        source="its scores do not depend on the tokens that are read",
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
                    "both are tiled; the paper does not say how",
                    "if both repeated as a whole, positions would have the same scores after some steps",
                ),
                IN_BATCHES,
            ),
        ),
        encoder=partial(SynthesizerAttention, scores=FactorizedDenseScores),
        decoder=partial(SynthesizerAttention, scores=FactorizedDenseScores, causal=True),
        source="its scores do not depend on the tokens that are read",
        paper="https://arxiv.org/abs/2005.00743",
        traits=Traits(training_time="n²", decoder_state="grows, values only", quadratic=True, state_grows=True),
        has_max_positions=True,
    ),
    Attention(
        name="synthesizer-factorized-random",
        published=Published(PAPER, (IN_BATCHES,)),
        encoder=partial(SynthesizerAttention, scores=FactorizedRandomScores),
        decoder=partial(SynthesizerAttention, scores=FactorizedRandomScores, causal=True),
        source="its scores do not depend on the tokens that are read",
        paper="https://arxiv.org/abs/2005.00743",
        traits=Traits(training_time="n²", decoder_state="grows, values only", quadratic=True, state_grows=True),
        has_max_positions=True,
    ),
)

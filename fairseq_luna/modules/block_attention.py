"""Block attention in two levels, and attention inside blocks alone, for the block pyramid.

A sequence is cut into m consecutive blocks. For each head, with s_b the mean of the outputs Y of block b::

    Y_t = sum_j softmax_j( q_t . k_j / sqrt(D) ) v_j            over the steps j of the block of t
    Z_b = sum_c softmax_c( q'_b . k'_c / sqrt(D) ) v'_c         over all blocks c, with q', k', v' projections of s
    out_t = W_o [Y_t ; Z_(block of t)]

A decoder's step sees its own block up to itself, and the summaries of the earlier blocks. docs/mathematics.md has the
details. It follows no published layer.

Parameters: ``q_proj``, ``k_proj``, ``v_proj`` of the first level, ``block_q_proj``, ``block_k_proj``, ``block_v_proj``
    of the second unless they are shared, and ``out_proj`` (W_o).
"""

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ops import block_attention as op
from ..ops.block_partition import Blocks, cut_by_number, cut_by_size, from_blocks, same_blocks
from ..ops.padding import Padding
from ..published import Published
from ..usage_error import ArgumentError
from .argument_checks import check_choice
from .attention import SelfAttention
from .conversion import Rule, Rules, first_part, identity_and_zero
from .declaration import Attention, Flag, Traits
from .multihead import QueriesKeysValues, merge_heads, padding_of, split_heads
from .projection import affine_of

UNORDERED = ("none", "mean", "sum")

UNPUBLISHED = "no published layer: its specification is in [mathematics](mathematics.md#block-attention)"


class Halves(NamedTuple):
    """The weights of ``out_proj`` for the two levels, and its bias."""

    weight_for_y: Tensor  # (C, C)
    weight_for_z: Tensor  # (C, C)
    bias: Tensor | None


class TwoLevelAttention(SelfAttention):
    """Attention inside given blocks and between them (``docs/mathematics.md``), with the projections of both levels.

    Args:
        share_levels: the second level uses the projections of the first.
        unordered: "none"; or "mean" or "sum": the first level is the mean or sum of the values of a block.
        options: arguments of :class:`.SelfAttention`; the heads are the same in both levels.

    Raises:
        UsageError: if ``unordered`` is unknown, or ``num_heads`` does not divide ``embed_dim``.
    """

    conversion_rules: ClassVar[Rules] = {
        "block_q_proj": Rule(("q_proj",)),
        "block_k_proj": Rule(("k_proj",)),
        "block_v_proj": Rule(("v_proj",)),
        "out_proj": Rule(fit=identity_and_zero),
    }
    successor_rules: ClassVar[Rules] = {"out_proj": Rule(fit=first_part)}  # the half that reads the first level

    def __init__(self, *, share_levels: bool = False, unordered: str = "none", **options: Any) -> None:
        super().__init__(**options)
        check_choice("unordered", unordered, UNORDERED)
        self.share_levels, self.unordered = share_levels, unordered
        linear = self.linear
        if self.is_ordered or share_levels:
            self.q_proj = linear.input_projection()
            self.k_proj = linear.input_projection()
        self.v_proj = linear.input_projection()
        if not share_levels:
            self.block_q_proj = linear.input_projection()
            self.block_k_proj = linear.input_projection()
            self.block_v_proj = linear.input_projection()
        self.out_proj = linear.output_projection(inputs=2)

    @property
    def is_ordered(self) -> bool:
        """The first level is an attention, not a mean or sum."""
        return self.unordered == "none"

    def attend_in(self, blocks: Blocks, x: Tensor) -> Tensor:
        """Both levels over ``x (T, B, C)``: ``(T, B, C)``."""
        options: dict[str, Any] = {"causal": self.causal, "dropout_p": self.dropout_p()}
        if self.is_ordered:
            y, z = op.block_attention(*self.queries_keys_values(x), self.project_summaries, blocks, **options)
        else:
            v = self.project_heads(self.v_proj, x)
            y, z = op.unordered_block_attention(v, self.project_summaries, blocks, reduce=self.unordered, **options)
        return self.output_of_both(y, z, blocks)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first level's projections of ``x (T, B, C)``, each ``(B, H, T, D)``."""
        q, k, v = self.project_heads_together(x, self.q_proj, self.k_proj, self.v_proj)
        return q, k, v

    def project_summaries(self, summaries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The second level's projections of ``(B, H, M, D)``, each of the same shape."""
        x = merge_heads(summaries)
        if self.share_levels:
            return self.queries_keys_values(x)
        q, k, v = self.project_heads_together(x, self.block_q_proj, self.block_k_proj, self.block_v_proj)
        return q, k, v

    def output_of_both(self, y: Tensor, z: Tensor, blocks: Blocks) -> Tensor:
        """``out_proj([Y ; Z]) (T, B, C)`` from Y ``(B, H, T, D)`` and the result of level two ``(B, H, M, D)``."""
        y, z, causal = merge_heads(y), z.transpose(1, 2).flatten(2), self.causal
        halves = self.output_halves()
        if halves is None:
            return self.out_proj(torch.cat([y, op.read_blocks(z, blocks, causal=causal)], dim=-1))
        return F.linear(y, halves.weight_for_y, halves.bias) + op.read_blocks(
            F.linear(z, halves.weight_for_z), blocks, causal=causal
        )

    def output_halves(self) -> Halves | None:
        """``out_proj`` in two, so that Z's part is computed once for a block; None if it is not a plain linear map."""
        affine = affine_of(self.out_proj)
        if affine is None:
            return None
        weight_for_y, weight_for_z = affine.weight.chunk(2, dim=1)
        return Halves(weight_for_y, weight_for_z, affine.bias)


class BlockAttention(TwoLevelAttention):
    """Bidirectional attention in two levels: about ``n^2 / m + m^2`` scores for n tokens in m blocks.

    Each sentence is cut by its own length: its output does not depend on the rest of the batch, except with random
    blocks.

    Args:
        num_blocks: blocks per sentence; 0 = the optimum ``(n^2 / 2)^(1/3)``. A shorter sentence has a block per token.
        random_blocks: random block sizes in training, drawn in each forward pass.
        options: arguments of :class:`.TwoLevelAttention`.

    Raises:
        UsageError: if ``num_blocks`` is negative, or :class:`.TwoLevelAttention` refuses an option.
    """

    def __init__(self, *, num_blocks: int = 0, random_blocks: bool = False, **options: Any) -> None:
        super().__init__(**options)
        if num_blocks < 0:
            raise ArgumentError("num_blocks", num_blocks, "must be 1 or more, or 0 for the optimum")
        self.num_blocks = num_blocks
        self.random_blocks = random_blocks

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        if self.random_blocks and self.training:
            blocks = cut_by_number(padding_of(x, padding), self.num_blocks, random=True, dtype=x.dtype)
        else:
            blocks = same_blocks(padding_of(x, padding), cut_by_number, self.num_blocks, x.dtype)
        return self.attend_in(blocks, x)


class BlockCausalAttention(TwoLevelAttention):
    """Causal attention in two levels (``docs/mathematics.md``).

    A token attends to its own block up to itself, and its block to the summaries of the earlier blocks. The block size
    is fixed, because generation does not know the length. Its state grows by one summary per complete block.

    Args:
        block_size: tokens per block.
        options: arguments of :class:`.TwoLevelAttention`; an unordered block's mean or sum is over the tokens up to
            each.

    Raises:
        UsageError: if ``block_size`` is not positive, or :class:`.TwoLevelAttention` refuses an option.
    """

    State = op.BlockState

    def __init__(self, *, block_size: int = 8, **options: Any) -> None:
        super().__init__(causal=True, **options)
        if block_size < 1:
            raise ArgumentError("block_size", block_size, "must be 1 or more, such as 8")
        self.block_size = block_size

    def attend(self, x: Tensor, padding: Padding) -> Tensor:
        return self.attend_in(same_blocks(padding_of(x, padding), cut_by_size, self.block_size, x.dtype), x)

    def attend_step(self, x: Tensor, padding: Padding, state: op.BlockState | None) -> tuple[Tensor, op.BlockState]:
        halves = self.output_halves()

        def finish(z: Tensor) -> Tensor:
            if halves is None:
                return z
            return split_heads(F.linear(merge_heads(z), halves.weight_for_z, halves.bias), self.num_heads)

        options = {**self.op_options(padding), "block_size": self.block_size, "finish": finish}
        step_arguments = self.project_summaries, state
        if self.is_ordered:
            y, z, state = op.block_attention_step(*self.queries_keys_values(x), *step_arguments, **options)
        else:
            v = self.project_heads(self.v_proj, x)
            y, z, state = op.unordered_block_attention_step(v, *step_arguments, reduce=self.unordered, **options)
        y, z = merge_heads(y), merge_heads(z)
        if halves is None:
            return self.out_proj(torch.cat([y, z], dim=-1)), state
        return torch.addmm(z.flatten(0, 1), y.flatten(0, 1), halves.weight_for_y.t()).view_as(x), state

    def state_with_room(self, state: op.BlockState, max_steps: int) -> op.BlockState:
        return op.allocate_block_state(state, self.block_size, max_steps)


class WithinBlockAttention(QueriesKeysValues):
    """Multi-head attention of each token to the tokens of its own block. Arguments: :class:`.QueriesKeysValues`."""

    def forward(self, x: Tensor, *, blocks: Blocks) -> Tensor:
        """Attend within the ``blocks`` of ``x (T, B, C)``: ``(T, B, C)``; undefined, but finite, at padding."""
        q, k, v = self.project_heads_together(x, self.q_proj, self.k_proj, self.v_proj)
        return self.project_output(
            from_blocks(op.attention_within(q, k, v, blocks, dropout_p=self.dropout_p()), blocks)
        )


PYRAMID = "its layers read blocks: choose --arch block_pyramid_classifier"

ATTENTIONS = (
    Attention(
        name="block",
        published=Published(UNPUBLISHED),
        paper="mathematics.md#block-attention",
        encoder=BlockAttention,
        decoder=BlockCausalAttention,
        source="its blocks are of one sequence",
        traits=Traits(
            training_time="n^(4/3)", decoder_state="one summary per block", state_grows=True, is_matrix=False
        ),
        flags=(
            Flag(
                name="num_blocks",
                argument="num_blocks",
                help="number of blocks of a source sentence; 0: the optimum, (n^2 / 2)^(1/3)",
                default=0,
                minimum=0,
                places=("encoder",),
            ),
            Flag(
                name="random_blocks",
                argument="random_blocks",
                help="in training, draw random block sizes in each layer at each step",
                kind=bool,
                default=False,
                places=("encoder",),
            ),
            Flag(
                name="share_block_levels",
                argument="share_levels",
                help="share projections between the attentions inside and between blocks",
                kind=bool,
                default=False,
            ),
            Flag(
                name="unordered_blocks",
                argument="unordered",
                help="replace attention inside a block by the mean or sum of its values",
                kind=str,
                default="none",
                choices=UNORDERED,
            ),
            Flag(
                name="decoder_block_size",
                argument="block_size",
                help="number of tokens in a block of the decoder",
                default=8,
                minimum=1,
                places=("decoder",),
            ),
        ),
    ),
    Attention(
        name="block-pyramid",
        published=Published(UNPUBLISHED),
        paper="mathematics.md#block-attention",
        encoder=PYRAMID,
        decoder=PYRAMID,
        source=PYRAMID,
        architecture="block_pyramid_classifier",
        traits=Traits(training_time="n · block", decoder_state="", sees_every_step=False),
    ),
)
